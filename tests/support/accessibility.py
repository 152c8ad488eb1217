"""What a page must be for everybody to read it, asked of a browser: names on whatever is filled in or pressed, headings
in their order, and enough contrast (WCAG 2.2 AA) of every text with what is behind it."""

from typing import Final

from playwright.async_api import Page

_LOOK: Final = """() => {
  const told = [];
  const seen = (at) => at.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
  const short = (at) => `${at.tagName.toLowerCase()} "${(at.textContent || at.name || "").trim().slice(0, 40)}"`;

  for (const at of document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a[href], summary")) {
    const labels = [...(at.labels ?? [])].map((label) => label.textContent).join("");
    const named = at.getAttribute("aria-label") || labels || at.textContent;
    if (seen(at) && !named.trim()) told.push(`no name: ${at.outerHTML.slice(0, 120)}`);
  }

  let level = 0;
  for (const at of document.querySelectorAll("main :is(h1, h2, h3, h4)")) {
    const next = Number(at.tagName[1]);
    if (next > level + 1) told.push(`heading ${next} after ${level}: ${short(at)}`);
    level = next;
  }

  const parse = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, under) => ({
    r: top.r * top.a + under.r * (1 - top.a),
    g: top.g * top.a + under.g * (1 - top.a),
    b: top.b * top.a + under.b * (1 - top.a),
    a: 1,
  });
  const behind = (at) => {
    const layers = [];
    for (let up = at; up; up = up.parentElement) layers.push(parse(getComputedStyle(up).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), { r: 255, g: 255, b: 255, a: 1 });
  };
  const light = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walk.nextNode(); text; text = walk.nextNode()) {
    const at = text.parentElement;
    if (!text.data.trim() || !seen(at) || at.closest("option, title, :disabled, .skip, .unseen")) continue;
    const style = getComputedStyle(at);
    const back = behind(at);
    const [a, b] = [light(over(parse(style.color), back)), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (ratio < least) told.push(`contrast ${ratio.toFixed(2)}: ${short(at)}`);
  }
  return [...new Set(told)];
}"""


async def unreadable(page: Page) -> list[str]:
    """What is wrong with it; nothing, if all is well."""
    found: list[str] = await page.evaluate(_LOOK)
    return found
