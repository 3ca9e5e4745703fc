package fleetview

import "strings"

// FullName returns the name under which an object of a cluster is shown.
func FullName(name, cluster string) string { return name + "." + cluster }

// SplitFullName splits a name into an object's own and its cluster's, which has no dot; false where it is
// not of that form.
func SplitFullName(name string) (object, cluster string, ok bool) {
	at := strings.LastIndexByte(name, '.')
	if at <= 0 || at == len(name)-1 {
		return "", "", false
	}
	return name[:at], name[at+1:], true
}

// ownName returns the own part of a name that is shown of a cluster.
func ownName(name, cluster string) (string, bool) {
	n, ok := strings.CutSuffix(name, "."+cluster)
	return n, ok && n != ""
}
