"""Tools that know nothing about surveys: types, messages, progress, resources."""
