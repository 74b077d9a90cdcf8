"""``python -m mainstem.sim``."""

from mainstem.sim.runner import main

raise SystemExit(main())
