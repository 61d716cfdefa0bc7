// Starts the slides: maths first, then reveal.js; a slide that is too tall is shrunk.
window.MathJax = {
  tex: { inlineMath: [["$", "$"]], processEscapes: true },
  options: { enableMenu: false },
  startup: { typeset: false },
};

function fit(slide) {
  const room = Reveal.getConfig().height;
  slide.style.fontSize = "";
  slide.classList.remove("scrolls");
  for (let percent = 100; percent > 55 && slide.scrollHeight > room; percent -= 5) {
    slide.style.fontSize = `${percent}%`;
  }
  slide.classList.toggle("scrolls", slide.scrollHeight > room);
}

async function showSlides() {
  await MathJax.startup.promise;
  await MathJax.typesetPromise([document.querySelector(".slides")]);
  Reveal.on("ready", (event) => fit(event.currentSlide));
  Reveal.on("slidechanged", (event) => fit(event.currentSlide));
  await Reveal.initialize({
    width: 1100,
    height: 700,
    margin: 0.03,
    center: false,
    hash: true,
    slideNumber: "c/t",
    transition: "none",
    plugins: [RevealNotes],
  });
}
