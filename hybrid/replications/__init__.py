"""Code for the papers' experiments only: task solvers and their models, path readers, Wikipedia's links."""
