// Package person defines the identity of a hub's user in a member: the name and the groups of the
// user's requests there, and the identities that no agent lets through.
//
// Contract: names with a meaning for Kubernetes, those that begin with "system:", are not carried
// over. ServiceAccounts and administrators of the hub have names of Atoll's own in a member, which
// begin with Prefix. A member grants them nothing until its administrator does. A user name of the
// hub under that prefix is not carried over, so that only the intended user has such a name. A
// name that a header would change, by its blanks, is not carried over either. The hub maps by
// MemberIdentityOf; agents check by CheckImpersonation, so that not even a hub gets further. All functions
// are pure.
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
	// Masters is the group of the hub's administrators in members.
	Masters = Prefix + "masters"

	mastersHere      = system + "masters"
	accountHere      = system + "serviceaccount:"
	accountsHere     = system + "serviceaccounts"
	accountThere     = Prefix + "serviceaccount:"
	accountsThere    = Prefix + "serviceaccounts"
	anonymousHere    = system + "anonymous"
	unauthenticateds = system + "unauthenticated"
)

// Person is the user of a request.
type Person struct {
	Name   string
	Groups []string
}

// MemberIdentityOf returns the identity of a hub's user in members. The error is the reason why the user
// has none.
func MemberIdentityOf(name string, groups []string) (Person, error) {
	var p Person
	var err error
	if p.Name, err = memberUserName(name, groups); err != nil {
		return Person{}, err
	}
	isAccount := strings.HasPrefix(name, accountHere)
	for _, g := range groups {
		if mapped, ok := memberGroupFor(g, isAccount); ok && !slices.Contains(p.Groups, mapped) {
			p.Groups = append(p.Groups, mapped)
		}
	}
	return p, nil
}

// memberUserName returns the name of a hub's user in members.
func memberUserName(name string, groups []string) (string, error) {
	account, isAccount := strings.CutPrefix(name, accountHere)
	switch {
	case name == "" || name == anonymousHere || slices.Contains(groups, unauthenticateds):
		return "", errors.New("the request has no user: members are reached under the user's name")
	case !isHeaderSafe(name):
		return "", fmt.Errorf("user %q: names that begin or end with blanks, or hold control characters, cannot be passed to members; log in under another name", name)
	case strings.HasPrefix(name, Prefix):
		return "", fmt.Errorf("user %q: names that begin with %q are Atoll's own, and are not passed to members; log in under another name", name, Prefix)
	case isAccount:
		return accountThere + account, nil
	case strings.HasPrefix(name, system) && slices.Contains(groups, mastersHere):
		return Prefix + strings.TrimPrefix(name, system), nil
	case strings.HasPrefix(name, system):
		return "", fmt.Errorf("user %q: names that begin with %q are a cluster's own, and are not passed to another one; use a person's name or a ServiceAccount", name, system)
	}
	return name, nil
}

// memberGroupFor returns the member's group for a group of the hub. ok is false when the group has no
// meaning in members.
func memberGroupFor(g string, isAccount bool) (there string, ok bool) {
	namespace, ofNamespace := strings.CutPrefix(g, accountsHere+":")
	switch {
	case !isHeaderSafe(g):
		return "", false
	case g == mastersHere:
		return Masters, true
	case isAccount && g == accountsHere:
		return accountsThere, true
	case isAccount && ofNamespace && strings.HasPrefix(namespace, "atoll-"):
		return "", false // ServiceAccounts of different tenants lie there
	case isAccount && ofNamespace:
		return accountsThere + ":" + namespace, true
	case strings.HasPrefix(g, system), strings.HasPrefix(g, Prefix):
		return "", false // the member adds system:authenticated by itself
	}
	return g, true
}

// isHeaderSafe reports whether a header passes the name on unchanged. Blanks around a value are
// dropped, and the rest might be a name of Kubernetes or of Atoll.
func isHeaderSafe(name string) bool {
	return name != "" && strings.TrimSpace(name) == name && !strings.ContainsFunc(name, unicode.IsControl)
}

// NamesNobody is the end of the error text for a request without a user. The hub recognises
// agents of a version before requests in the hub's own name by it, so it does not change.
const NamesNobody = "the request names nobody to make it as"

// CheckImpersonation refuses identities that must not be impersonated in a member.
func CheckImpersonation(p Person) error {
	if p.Name == "" {
		return errors.New(NamesNobody)
	}
	for _, name := range append([]string{p.Name}, p.Groups...) {
		if !isHeaderSafe(name) {
			return fmt.Errorf("%q cannot be passed in a header", name)
		}
		if strings.HasPrefix(name, system) {
			return fmt.Errorf("%q is a name of this cluster's own: it is never accepted from another cluster", name)
		}
	}
	return nil
}
