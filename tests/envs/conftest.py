import pytest


@pytest.fixture(autouse=True)
def without_data(monkeypatch, request):
    """Environments have generated data, unless a test asks for the benchmark's."""
    if "data_dir" not in request.fixturenames:
        monkeypatch.delenv("SVEA_DATA", raising=False)
