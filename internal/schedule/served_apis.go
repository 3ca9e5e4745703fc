package schedule

import (
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
)

// ServedAPIs is a set of kinds that clusters serve. Read-only; clusters that serve the same
// kinds share one.
type ServedAPIs struct{ servedNames map[string]struct{} }

// APIsOf returns the set of a list of "group/version/Kind", core as "/v1/Pod", as an APISet
// has it.
func APIsOf(kinds []string) *ServedAPIs {
	a := &ServedAPIs{servedNames: make(map[string]struct{}, len(kinds)+len(kinds)/4)}
	for _, k := range kinds {
		a.servedNames[k] = struct{}{}
		if i := strings.LastIndexByte(k, '/'); i >= 0 {
			a.servedNames[k[:i]] = struct{}{}
		}
	}
	return a
}

// formatAPIName returns the name that ServedAPIs has for an API.
func formatAPIName(a v1alpha1.ServedAPI) string {
	version := a.APIVersion
	if !strings.Contains(version, "/") {
		version = "/" + version
	}
	if a.Kind == "" {
		return version
	}
	return version + "/" + a.Kind
}

// FormatKindName returns the name that ServedAPIs has for a kind of an apiVersion.
func FormatKindName(apiVersion, kind string) string {
	return formatAPIName(v1alpha1.ServedAPI{APIVersion: apiVersion, Kind: kind})
}

// firstMissing returns the first name that is not served.
func (a *ServedAPIs) firstMissing(names []string) (string, bool) {
	if a == nil {
		return "", false
	}
	for _, n := range names {
		if _, ok := a.servedNames[n]; !ok {
			return n, true
		}
	}
	return "", false
}

// refuseByAPIs checks the APIs that the placement requires.
func (f *CompiledPlacement) refuseByAPIs(c *Cluster, q question) (refusal, bool) {
	missing, lacks := c.APIs.firstMissing(f.apis)
	if !lacks {
		return refusal{}, false
	}
	r := refusal{agentReported: true}
	if q.say {
		r.reason = "does not serve " + strings.TrimPrefix(missing, "/") + ", which the placement requires"
	}
	return r, true
}

// refuseByKinds checks the kinds of the Bundle's items.
func (f *CompiledPlacement) refuseByKinds(c *Cluster, q question) (refusal, bool) {
	missing, lacks := c.APIs.firstMissing(f.kinds)
	if !lacks {
		return refusal{}, false
	}
	r := refusal{agentReported: true}
	if q.say {
		r.reason = "does not serve " + strings.TrimPrefix(missing, "/") + ", which the bundle holds: install its definition or API service there, or place it with the bundle"
	}
	return r, true
}
