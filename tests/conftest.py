"""The options of every test run: pytest reads them from here only, whichever folder it is given."""


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run the torture rounds in full")
