package live

import "strings"

// Name under which an object of a cluster is shown.
func Name(name, cluster string) string { return name + "." + cluster }

// Split a name into an object's own and its cluster's, which has no dot; false where it is
// not of that form.
func Split(name string) (object, cluster string, ok bool) {
	at := strings.LastIndexByte(name, '.')
	if at <= 0 || at == len(name)-1 {
		return "", "", false
	}
	return name[:at], name[at+1:], true
}

// own part of a name that is shown of a cluster.
func own(name, cluster string) (string, bool) {
	n, ok := strings.CutSuffix(name, "."+cluster)
	return n, ok && n != ""
}
