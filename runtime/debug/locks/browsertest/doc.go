// Package browsertest looks at the page of package locks in Chromium. It is a module of its
// own, because what drives the browser is nothing that users of lockgen should download.
package browsertest
