// Clips of the gallery play while they are on the screen; a click, Enter or the space bar stops and
// starts one. Where less motion is wanted nothing starts by itself. Without scripts the clips have
// the browser's own controls.
document.addEventListener("DOMContentLoaded", () => {
  const clips = document.querySelectorAll("video.clip");
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  const stopped = new WeakSet();
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) target.pause();
      else if (!still.matches && !stopped.has(target)) target.play().catch(() => {});
    }
  });
  const toggle = (clip) => {
    if (clip.paused) { stopped.delete(clip); clip.play().catch(() => {}); }
    else { stopped.add(clip); clip.pause(); }
  };
  for (const clip of clips) {
    clip.controls = false;
    clip.tabIndex = 0;
    clip.addEventListener("click", () => toggle(clip));
    clip.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(clip); }
    });
    watcher.observe(clip);
  }
});
