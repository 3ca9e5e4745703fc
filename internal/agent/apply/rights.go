package apply

import (
	"fmt"
	"regexp"
	"strings"
)

// LabelAggregate is on the ClusterRoles of a member that its agent has: the ClusterRole
// atoll-agent takes in all that carry it with the value "true".
const LabelAggregate = "rbac.atoll.dev/aggregate-to-agent"

// refusal matches the message of API servers for a missing RBAC right.
var refusal = regexp.MustCompile(`User "([^"]*)" cannot (\S+) resource "([^"]*)" in API group "([^"]*)"`)

// ungranted matches the message for a grant of more rights than the writer has.
const ungranted = "attempting to grant RBAC permissions not currently held"

// missingRightAdvice returns which right is missing and how to grant it; empty for other
// messages.
func missingRightAdvice(message string) string {
	if at := strings.Index(message, ungranted); at >= 0 {
		return "the agent cannot grant rights in this cluster that it does not have: its administrator gives the agent these rights too, or the verbs escalate and bind: " + message[at:]
	}
	m := refusal.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	user, verb, resource, group := m[1], m[2], m[3], m[4]
	if group == "" {
		group = `""`
	}
	verbs := "get, list, watch, create, update, patch, delete"
	if verb == "impersonate" || resource == "subjectaccessreviews" {
		verbs = verb
	}
	rule := fmt.Sprintf("{apiGroups: [%s], resources: [%s], verbs: [%s]}", group, resource, verbs)
	const account = "system:serviceaccount:"
	if name, ok := strings.CutPrefix(user, account); ok && name != "atoll-system:atoll-agent" {
		return fmt.Sprintf("this cluster's RBAC forbids ServiceAccount %s, as which the agent writes there, to %s %s: its administrator grants it %s",
			strings.Replace(name, ":", "/", 1), verb, resource, rule)
	}
	if allow := allowFlagValue(verb, resource, group); allow != "" {
		if m[4] != "" {
			resource += "." + group
		}
		return fmt.Sprintf("this cluster's RBAC forbids the agent to %s %s: its administrator installs it again by atoll join --allow %s, or adds a ClusterRole labelled %s=true with a rule for them",
			verb, resource, allow, LabelAggregate)
	}
	return fmt.Sprintf("this cluster's RBAC forbids the agent to %s %s: its administrator adds a ClusterRole labelled %s=true with %s",
		verb, resource, LabelAggregate, rule)
}

// allowFlagValue names what of atoll join --allow gives the right, and little else; empty: nothing does.
func allowFlagValue(verb, resource, group string) string {
	switch {
	case group == "apiextensions.k8s.io" && resource == "customresourcedefinitions":
		return "crds"
	case group == rbacGroup:
		return "rbac"
	case verb == "impersonate" && (resource == "users" || resource == "groups"):
		return "impersonate"
	}
	return ""
}
