package kinds

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	netutils "k8s.io/utils/net"
)

// maxNamedClusters is the most clusters whose load balancer addresses are listed one by one: no
// object may grow with the fleet.
const maxNamedClusters = 1000

// AggregatedStatusNamesClusters reports whether AggregateStatus names clusters in the status of a template that
// runs in so many clusters. Each cluster then needs a row of its own, without EqualClusters.
func AggregatedStatusNamesClusters(template *unstructured.Unstructured, clusters int) bool {
	return clusters <= maxNamedClusters && hasLoadBalancerStatus(template)
}

// hasLoadBalancerStatus reports whether the template's status is the addresses of load
// balancers.
func hasLoadBalancerStatus(template *unstructured.Unstructured) bool {
	switch groupKindOf(template) {
	case schema.GroupKind{Kind: "Service"}:
		return stringField(specOf(template), "type") == "LoadBalancer"
	case schema.GroupKind{Group: "networking.k8s.io", Kind: "Ingress"}:
		return true
	}
	return false
}

// aggregateLoadBalancerAddresses joins the load balancer addresses of all clusters, disconnected ones
// included: a lost link withdraws no address. The hostname of an IP address is its cluster, as
// in Karmada, where the member states none.
func aggregateLoadBalancerAddresses(a *statusAggregation) (map[string]any, bool) {
	if !hasLoadBalancerStatus(a.template) {
		return nil, false
	}
	all := a.collectIngresses()
	if len(a.rows) == 0 || a.hasNothingToWrite() && len(all) == 0 {
		return nil, false
	}
	service := a.template.GetKind() == "Service"
	var ingress []any
	for _, i := range all {
		m := map[string]any{}
		if i.ip != "" {
			m["ip"] = i.ip
		}
		if i.ip != "" && service {
			m["ipMode"] = i.mode
		}
		if i.host != "" {
			m["hostname"] = i.host
		}
		ingress = append(ingress, m)
	}
	st := a.copyTemplateStatus()
	st["loadBalancer"] = map[string]any{}
	if len(ingress) > 0 {
		st["loadBalancer"] = map[string]any{"ingress": ingress}
	}
	return st, true
}

// loadBalancerIngress is one entry of a load balancer.
type loadBalancerIngress struct{ ip, mode, host string }

// collectIngresses returns the ingresses of all clusters, sorted and without duplicates. Those
// without an IP address go first.
func (a *statusAggregation) collectIngresses() []loadBalancerIngress {
	seen, named := map[loadBalancerIngress]bool{}, a.canNameClusters()
	for _, r := range slices.Concat(a.rows, a.disconnected) {
		for _, l := range r.L {
			i := parseIngress(l)
			// The API server refuses a hostname that is an IP address.
			if i.host == "" && named && netutils.ParseIPSloppy(r.Cluster) == nil {
				i.host = r.Cluster
			}
			seen[i] = true
		}
	}
	out := make([]loadBalancerIngress, 0, len(seen))
	for i := range seen {
		out = append(out, i)
	}
	slices.SortFunc(out, func(x, y loadBalancerIngress) int {
		return cmp.Or(cmp.Compare(x.ip, y.ip), cmp.Compare(x.mode, y.mode), cmp.Compare(x.host, y.host))
	})
	return out
}

// canNameClusters reports whether each row stands for one cluster, and there are at most
// maxNamedClusters.
func (a *statusAggregation) canNameClusters() bool {
	for _, r := range slices.Concat(a.rows, a.disconnected) {
		if r.EqualClusters > 0 {
			return false
		}
	}
	return len(a.rows)+len(a.disconnected) <= maxNamedClusters
}

// reflectLoadBalancerAddresses encodes addresses as "ip ADDRESS HOST", "proxy ADDRESS HOST" or "host NAME".
// HOST is present where the member states it.
func reflectLoadBalancerAddresses(obj *unstructured.Unstructured) (reflectedStatus, bool) {
	var out []string
	for _, e := range listField(nestedMap(statusOf(obj), "loadBalancer"), "ingress") {
		em, _ := e.(map[string]any)
		host := stringField(em, "hostname")
		switch ip := stringField(em, "ip"); {
		case ip != "" && stringField(em, "ipMode") == "Proxy":
			out = append(out, strings.TrimSpace("proxy "+ip+" "+host))
		case ip != "":
			out = append(out, strings.TrimSpace("ip "+ip+" "+host))
		case host != "":
			out = append(out, "host "+host)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return reflectedStatus{L: out[:min(len(out), maxAddresses)]}, len(out) > 0
}

// parseIngress decodes an address of reflectLoadBalancerAddresses.
func parseIngress(l string) loadBalancerIngress {
	kind, address, _ := strings.Cut(l, " ")
	ip, host, _ := strings.Cut(address, " ")
	switch kind {
	case "host":
		return loadBalancerIngress{host: address}
	case "proxy":
		return loadBalancerIngress{ip: ip, mode: "Proxy", host: host}
	}
	return loadBalancerIngress{ip: ip, mode: "VIP", host: host}
}

// collectTypedAddresses returns the addresses of all clusters, disconnected ones included, sorted and
// without duplicates.
func (a *statusAggregation) collectTypedAddresses() []string {
	seen := map[string]bool{}
	for _, r := range slices.Concat(a.rows, a.disconnected) {
		for _, l := range r.L {
			seen[l] = true
		}
	}
	return sortedKeys(seen)
}

// joinTypedAddresses writes the addresses of all clusters, disconnected ones included. An entry
// cannot name its cluster: it has a type and a value alone, and clients read both.
func (a *statusAggregation) joinTypedAddresses(st map[string]any) {
	delete(st, "addresses")
	var out []any
	for _, l := range a.collectTypedAddresses() {
		kind, value, _ := strings.Cut(l, " ")
		out = append(out, map[string]any{"type": kind, "value": value})
	}
	if len(out) > 0 {
		st["addresses"] = out[:min(len(out), maxAddresses)] // the limit of the API server
	}
}
