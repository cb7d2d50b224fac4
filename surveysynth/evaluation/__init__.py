"""Judge releases and methods. Everything here may see confidential data: no release imports it."""
