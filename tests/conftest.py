"""What every tier shares: property tests draw the same examples every time, so that a red run is red for everybody.

``HYPOTHESIS_PROFILE=explore`` draws new ones.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
