# Fixtures that any test folder may use; tests/testbed/README.md describes the hosts.
pytest_plugins = ["tests.testbed.fixtures"]
