"""What has nothing to do with surveys: types, messages, progress, resources."""
