package interpret

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	netutils "k8s.io/utils/net"
)

// maxNamed is of how many clusters at most a load balancer's addresses are told one by one: no
// object is to grow with the fleet.
const maxNamed = 1000

// NamesClusters tells whether Aggregate names clusters in the status of the template, which is
// to run in so many: then it has to be given their rows one by one, and not one row for More.
func NamesClusters(template *unstructured.Unstructured, clusters int) bool {
	return clusters <= maxNamed && balanced(template)
}

// balanced tells whether load balancers' addresses are the template's status.
func balanced(template *unstructured.Unstructured) bool {
	switch groupKind(template) {
	case schema.GroupKind{Kind: "Service"}:
		return text(spec(template), "type") == "LoadBalancer"
	case schema.GroupKind{Group: "networking.k8s.io", Kind: "Ingress"}:
		return true
	}
	return false
}

// aggregateAddresses joins the load balancers' addresses of all clusters, those
// that are away included: an address is not withdrawn because a link was lost. Of which
// cluster an IP address is says its hostname, as users of Karmada know it, where the member
// itself gives it none.
func aggregateAddresses(a *aggregation) (map[string]any, bool) {
	if !balanced(a.template) {
		return nil, false
	}
	all := a.ingresses()
	if len(a.rows) == 0 || a.quiet() && len(all) == 0 {
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
	st := a.copied()
	st["loadBalancer"] = map[string]any{}
	if len(ingress) > 0 {
		st["loadBalancer"] = map[string]any{"ingress": ingress}
	}
	return st, true
}

// ingress is one entry of a load balancer.
type ingress struct{ ip, mode, host string }

// ingresses of all clusters, each once and in order: what has no IP address goes first.
func (a *aggregation) ingresses() []ingress {
	seen, named := map[ingress]bool{}, a.oneByOne()
	for _, r := range slices.Concat(a.rows, a.away) {
		for _, l := range r.L {
			i := readIngress(l)
			// A host that reads as an address is one that the API server refuses.
			if i.host == "" && named && netutils.ParseIPSloppy(r.Cluster) == nil {
				i.host = r.Cluster
			}
			seen[i] = true
		}
	}
	out := make([]ingress, 0, len(seen))
	for i := range seen {
		out = append(out, i)
	}
	slices.SortFunc(out, func(x, y ingress) int {
		return cmp.Or(cmp.Compare(x.ip, y.ip), cmp.Compare(x.mode, y.mode), cmp.Compare(x.host, y.host))
	})
	return out
}

// oneByOne tells whether each row stands for one cluster, and these are not too many.
func (a *aggregation) oneByOne() bool {
	for _, r := range slices.Concat(a.rows, a.away) {
		if r.More > 0 {
			return false
		}
	}
	return len(a.rows)+len(a.away) <= maxNamed
}

// reflectAddresses as "ip ADDRESS", "proxy ADDRESS", either with the host that the member
// gives it behind, or "host NAME".
func reflectAddresses(obj *unstructured.Unstructured) (reflected, bool) {
	var out []string
	for _, e := range list(child(status(obj), "loadBalancer"), "ingress") {
		em, _ := e.(map[string]any)
		host := text(em, "hostname")
		switch ip := text(em, "ip"); {
		case ip != "" && text(em, "ipMode") == "Proxy":
			out = append(out, strings.TrimSpace("proxy "+ip+" "+host))
		case ip != "":
			out = append(out, strings.TrimSpace("ip "+ip+" "+host))
		case host != "":
			out = append(out, "host "+host)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return reflected{L: out[:min(len(out), maxAddresses)]}, len(out) > 0
}

// readIngress as it was reflected.
func readIngress(l string) ingress {
	kind, address, _ := strings.Cut(l, " ")
	ip, host, _ := strings.Cut(address, " ")
	switch kind {
	case "host":
		return ingress{host: address}
	case "proxy":
		return ingress{ip: ip, mode: "Proxy", host: host}
	}
	return ingress{ip: ip, mode: "VIP", host: host}
}

// addresses that clusters list, those that are away included, each once and in order.
func (a *aggregation) addresses() []string {
	seen := map[string]bool{}
	for _, r := range slices.Concat(a.rows, a.away) {
		for _, l := range r.L {
			seen[l] = true
		}
	}
	return sortedKeys(seen)
}

// joinAddresses of all clusters, those that are away included, as of load balancers. Of which
// cluster one is has no place here: type and value are all there is, and clients read both.
func (a *aggregation) joinAddresses(st map[string]any) {
	delete(st, "addresses")
	var out []any
	for _, l := range a.addresses() {
		kind, value, _ := strings.Cut(l, " ")
		out = append(out, map[string]any{"type": kind, "value": value})
	}
	if len(out) > 0 {
		st["addresses"] = out[:min(len(out), maxAddresses)] // no API server takes more
	}
}
