"""The playground: a local page to change the world by hand and watch agents in it.

The verb `svea play` is the one place that imports it, through `server.serve`, which checks who
connects. `setting` is what a page may ask for. A page has a `session`; every agent plays in a
process of its own (`player`), which ends with the page. The page itself is plain HTML, CSS and
JavaScript in `page/`.
"""
