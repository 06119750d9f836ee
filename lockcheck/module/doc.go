// Package module runs the checks of lockcheck over a whole module at once. It also finds
// contradictions between packages that no program imports together, such as two services of
// one repository. An analyzer sees one package and its imports, and can't find these.
package module
