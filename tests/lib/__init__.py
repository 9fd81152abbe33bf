"""What the integration tests share: servers, a scripted origin, and the daemon under test with its mounts."""
