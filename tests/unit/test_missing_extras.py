"""If a package of an extra is missing, MissingExtraError names the extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mainstem.aqueduct import quic
from mainstem.errors import MissingExtraError, needs_extras

WITHOUT_EXTRAS = """
import sys
from mainstem.errors import MissingExtraError

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MissingExtraError.EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
try:
    CODE
except MissingExtraError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("code", "module", "extra"),
    [
        ("from mainstem.aqueduct import CborSerializer; CborSerializer()", "cbor2", "quic"),
        ("from mainstem.aqueduct import MsgspecSerializer; MsgspecSerializer()", "msgspec", "codecs"),
        ("from mainstem.aqueduct import make_certificates; make_certificates('certs')", "cryptography", "encryption"),
        ("from mainstem.aqueduct.quic import load_backend; load_backend('qh3')", "qh3", "quic"),
        ("from mainstem.aqueduct.quic import load_backend; load_backend('aioquic')", "aioquic", "quic"),
        ("from mainstem.duologue import ServerKey", "cryptography", "encryption"),
        ("import mainstem.spark.tables", "numpy", "tables"),
        ("from mainstem.spark import create_session; create_session()", "pyspark", "spark"),
        ("from mainstem import open_recordings; open_recordings('s3://bucket/tides')", "obstore", "stores"),
    ],
)
def test_the_error_names_the_extra(code: str, module: str, extra: str) -> None:
    command = [sys.executable, "-c", WITHOUT_EXTRAS.replace("CODE", code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == f"{module} is not installed: pip install 'mainstem[{extra}]'"


def test_a_package_that_is_installed_but_does_not_fit_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ImportError(f"cannot import name 'Missing' from {name!r}", name="qh3")

    monkeypatch.setattr(quic, "import_module", fail)
    with pytest.raises(ImportError, match="cannot import name") as caught:
        quic.load_backend("qh3")
    assert not isinstance(caught.value, MissingExtraError)
    with pytest.raises(ImportError, match="cannot import name"), needs_extras():
        fail("numpy")
