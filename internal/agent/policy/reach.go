package policy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"atoll.dev/atoll/api/agent/v1alpha1"
	"atoll.dev/atoll/internal/trust/person"
)

// AdmitPerson returns the person with the groups that may come along, or the reason of the
// refusal.
func (p *Policy) AdmitPerson(who person.Person, method, path string, upgrades bool) (person.Person, error) {
	if p == nil {
		return who, nil
	}
	if p.closed != "" {
		return who, fmt.Errorf("%s", p.closed)
	}
	r := p.spec.Reach
	if r == nil {
		return who, nil
	}
	if len(r.Users) > 0 && !matchAny(r.Users, who.Name) {
		return who, fmt.Errorf("%s does not let user %q in (spec.reach.users): ask this cluster's administrator", p.name, who.Name)
	}
	if sort := ClassifyRequest(method, path, upgrades); r.Requests != nil && !slices.Contains(*r.Requests, sort) {
		return who, fmt.Errorf("%s does not allow requests of the sort %s through the hub (spec.reach.requests): ask this cluster's administrator", p.name, sort)
	}
	if len(r.Groups) > 0 {
		who.Groups = slices.DeleteFunc(slices.Clone(who.Groups), func(g string) bool { return !matchAny(r.Groups, g) })
	}
	return who, nil
}

// CheckLiveRequest returns the refusal of a request in the hub's own name, which shows people the
// running objects of their workloads; nil: it is permitted. Such a request has no user, so users
// and groups do not matter: the hub's RBAC decides on the readers.
func (p *Policy) CheckLiveRequest(method, path string) error {
	if p == nil {
		return nil
	}
	if p.closed != "" {
		return fmt.Errorf("%s", p.closed)
	}
	if r := p.spec.Reach; r != nil && r.Requests != nil {
		if sort := ClassifyRequest(method, path, false); !slices.Contains(*r.Requests, sort) {
			return fmt.Errorf("%s does not allow requests of the sort %s through the hub (spec.reach.requests): ask this cluster's administrator", p.name, sort)
		}
	}
	return nil
}

// ClassifyRequest returns the sort of a request by its method and path, and whether it upgrades its connection.
func ClassifyRequest(method, path string, upgrades bool) v1alpha1.Request {
	resource, subresource := resourceAndSubresource(path)
	switch {
	case upgrades, slices.Contains([]string{"exec", "attach", "portforward", "proxy"}, subresource):
		return v1alpha1.RequestConnect
	case method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions:
		return v1alpha1.RequestWrite
	case resource == "pods" && subresource == "log":
		return v1alpha1.RequestLogs
	}
	return v1alpha1.RequestRead
}

// resourceAndSubresource returns the ends of the path of a request to Kubernetes' API: the resource, and the subresource, if it
// names one.
func resourceAndSubresource(path string) (resource, subresource string) {
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "", ""
	}
	switch parts[0] { // the old ways to request an upgrade
	case "proxy":
		return "", "proxy"
	case "watch":
		parts = parts[1:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" && !slices.Contains([]string{"status", "finalize"}, parts[2]) {
		parts = parts[2:]
	}
	if len(parts) > 0 {
		resource = parts[0]
	}
	if len(parts) > 2 {
		subresource = parts[2]
	}
	return resource, subresource
}
