"""MuJoCo's pictures without OpenGL."""
