// Package person says who a user of the hub is in a member: under which name and in
// which groups a request is made there, and what no agent lets through.
//
// Contract: names that Kubernetes itself gives a meaning, those that begin with
// "system:", nobody carries over. ServiceAccounts and administrators of the hub are in a
// member under names of Atoll's own, which begin with Prefix; a member grants them
// nothing until its administrator does. What a user of the hub is called under that
// prefix is not carried, so that nobody comes by such a name but who is meant by it; nor is
// a name that a header would change, by its blanks, into another one. The
// hub maps by Of; agents check by Check, so that not even a hub gets further. All
// functions are pure.
package person

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

const (
	// Prefix of the names that Atoll gives.
	Prefix = "atoll:"
	// system is the prefix of the names that Kubernetes gives.
	system = "system:"
	// Masters is the group of the hub's administrators, as members know it.
	Masters = Prefix + "masters"

	mastersHere      = system + "masters"
	accountHere      = system + "serviceaccount:"
	accountsHere     = system + "serviceaccounts"
	accountThere     = Prefix + "serviceaccount:"
	accountsThere    = Prefix + "serviceaccounts"
	anonymousHere    = system + "anonymous"
	unauthenticateds = system + "unauthenticated"
)

// Person is who asks.
type Person struct {
	Name   string
	Groups []string
}

// Of gives who a user of the hub is in members. The error says why he is nobody there.
func Of(name string, groups []string) (Person, error) {
	admin := slices.Contains(groups, mastersHere)
	account, isAccount := strings.CutPrefix(name, accountHere)
	var p Person
	switch {
	case name == "" || name == anonymousHere || slices.Contains(groups, unauthenticateds):
		return p, errors.New("nobody is logged in: members are reached under the name of who asks")
	case !carries(name):
		return p, fmt.Errorf("user %q: names that begin or end with blanks, or hold control characters, become others on their way into members; log in under another name", name)
	case strings.HasPrefix(name, Prefix):
		return p, fmt.Errorf("user %q: names that begin with %q are Atoll's own, and are not carried into members; log in under another name", name, Prefix)
	case isAccount:
		p.Name = accountThere + account
	case strings.HasPrefix(name, system) && admin:
		p.Name = Prefix + strings.TrimPrefix(name, system)
	case strings.HasPrefix(name, system):
		return p, fmt.Errorf("user %q: names that begin with %q are a cluster's own, and are not carried into another one; ask as a person or a ServiceAccount", name, system)
	default:
		p.Name = name
	}
	for _, g := range groups {
		if there, ok := group(g, isAccount); ok && !slices.Contains(p.Groups, there) {
			p.Groups = append(p.Groups, there)
		}
	}
	return p, nil
}

// group that a group of the hub is in members; ok is false where it is none.
func group(g string, isAccount bool) (there string, ok bool) {
	namespace, ofNamespace := strings.CutPrefix(g, accountsHere+":")
	switch {
	case !carries(g):
		return "", false
	case g == mastersHere:
		return Masters, true
	case isAccount && g == accountsHere:
		return accountsThere, true
	case isAccount && ofNamespace:
		return accountsThere + ":" + namespace, true
	case strings.HasPrefix(g, system), strings.HasPrefix(g, Prefix):
		return "", false // the member adds system:authenticated by itself
	}
	return g, true
}

// carries tells whether a header brings a name over as it is: blanks around a value are
// none of it, and what then remains may be a name of Kubernetes's own, or of Atoll's.
func carries(name string) bool {
	return name != "" && strings.TrimSpace(name) == name && !strings.ContainsFunc(name, unicode.IsControl)
}

// NamesNobody is how the refusal of a request ends that names nobody. By it the hub knows
// agents that take what it asks in its own name for such a request, since they are of a
// version before there was any: so it does not change.
const NamesNobody = "the request names nobody to make it as"

// Check refuses who must not be impersonated in a member, whoever asks for it.
func Check(p Person) error {
	if p.Name == "" {
		return errors.New(NamesNobody)
	}
	for _, name := range append([]string{p.Name}, p.Groups...) {
		if !carries(name) {
			return fmt.Errorf("%q is no name that a header can carry", name)
		}
		if strings.HasPrefix(name, system) {
			return fmt.Errorf("%q is a name of this cluster's own: nobody comes by it from elsewhere", name)
		}
	}
	return nil
}
