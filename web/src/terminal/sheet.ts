// Style sheets of the terminal. The policy of the page refuses style elements, so each one is a constructed sheet.

/** Stands in for a style element: its text is a style sheet of the document until it is removed. */
export function createStyle(): HTMLElement {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  const marker = document.createElement("span");
  marker.hidden = true;
  Object.defineProperty(marker, "textContent", { set: (text: string) => sheet.replaceSync(text) });
  marker.remove = () => {
    Element.prototype.remove.call(marker);
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== sheet);
  };
  return marker;
}
