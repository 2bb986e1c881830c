// A page from a disk may start no worker, and the theme's search runs in one. Then a hidden frame
// does the worker's work: the theme looks for the name IFrameWorker.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super()
    const frame = document.createElement("iframe")
    frame.hidden = true
    document.body.append(frame)
    this.frame = frame.contentWindow
    this.frame.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
    this.loaded = new Promise(resolve => {
      const script = frame.contentDocument.createElement("script")
      script.src = new URL(url, location.href)
      script.onload = resolve
      frame.contentDocument.body.append(script)
    })
  }

  postMessage(data) {
    this.loaded.then(() => this.frame.dispatchEvent(new MessageEvent("message", { data })))
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = IFrameWorker
}
