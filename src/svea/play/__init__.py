"""The playground: a local page to change the world by hand and watch agents in it.

`setting` is what a page may ask for. A page has a `session`; every agent plays in a process of its
own (`process`, `player`), which ends with the page. `server` is the only door, and checks who
knocks. The page itself is plain HTML, CSS and JavaScript in `page/`.
"""
