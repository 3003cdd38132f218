// The search reads a hyphen before a word as "without this word", so that it found nothing for a flag
// as it is written: --abc-cross-slots. Hyphens before words are removed from a query before it reaches
// the search worker of mkdocs-material, where messages of type 2 are queries.
{
  const post = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (message, ...rest) {
    if (message?.type === 2 && typeof message.data === "string")
      message = { ...message, data: message.data.replace(/(^|\s)-+(?=\w|\s|$)/g, "$1") };
    return post.call(this, message, ...rest);
  };
}
