package schedule

import (
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
)

// APIs is a set of kinds that clusters serve. Read-only; clusters that serve the same
// share one.
type APIs struct{ served map[string]struct{} }

// APIsOf a list of "group/version/Kind", core as "/v1/Pod", as an APISet has it.
func APIsOf(kinds []string) *APIs {
	a := &APIs{served: make(map[string]struct{}, len(kinds)+len(kinds)/4)}
	for _, k := range kinds {
		a.served[k] = struct{}{}
		if i := strings.LastIndexByte(k, '/'); i >= 0 {
			a.served[k[:i]] = struct{}{}
		}
	}
	return a
}

// nameAPI as APIs has it.
func nameAPI(a v1alpha1.ServedAPI) string {
	version := a.APIVersion
	if !strings.Contains(version, "/") {
		version = "/" + version
	}
	if a.Kind == "" {
		return version
	}
	return version + "/" + a.Kind
}

// KindName gives the name that APIs has for a kind of an apiVersion.
func KindName(apiVersion, kind string) string {
	return nameAPI(v1alpha1.ServedAPI{APIVersion: apiVersion, Kind: kind})
}

// lacking gives the first name that is not served.
func (a *APIs) lacking(names []string) (string, bool) {
	if a == nil {
		return "", false
	}
	for _, n := range names {
		if _, ok := a.served[n]; !ok {
			return n, true
		}
	}
	return "", false
}

// serves asks for the APIs that the placement wants.
func (f *Filter) serves(c *Cluster, say bool) (refusal, bool) {
	missing, lacks := c.APIs.lacking(f.apis)
	if !lacks {
		return refusal{}, false
	}
	r := refusal{filter: FilterAPIs, print: f.apisPrint, place: printAPIs, reported: true}
	if say {
		r.reason = "does not serve " + strings.TrimPrefix(missing, "/") + ", which the placement asks for"
	}
	return r, true
}

// serveKinds asks for the kinds that the Bundle's items are of.
func (f *Filter) serveKinds(c *Cluster, say bool) (refusal, bool) {
	missing, lacks := c.APIs.lacking(f.kinds)
	if !lacks {
		return refusal{}, false
	}
	r := refusal{filter: FilterKinds, reported: true}
	if say {
		r.reason = "does not serve " + strings.TrimPrefix(missing, "/") + ", which the bundle holds: install its definition or API service there, or place it with the bundle"
	}
	return r, true
}
