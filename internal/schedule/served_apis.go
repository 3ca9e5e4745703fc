package schedule

import (
	"slices"
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

// ServesKind reports whether a kind of an apiVersion is in the set.
func (a *ServedAPIs) ServesKind(apiVersion, kind string) bool {
	_, ok := a.servedNames[FormatKindName(apiVersion, kind)]
	return ok
}

// VersionLosses has, by a kind as ServedAPIs names it and by another API version, why the version cannot hold an
// object of the kind. It is empty where the version holds all of them. Versions that are not in it were not
// looked at.
type VersionLosses map[string]map[string]string

// AddLoss notes the loss of one object, or that there is none. The first loss of a kind counts.
func (l VersionLosses) AddLoss(kind, apiVersion, loss string) {
	if l[kind] == nil {
		l[kind] = map[string]string{}
	}
	if l[kind][apiVersion] == "" {
		l[kind][apiVersion] = loss
	}
}

// replacementsOf returns the API versions in which the cluster can get the objects of a kind that it does not
// serve.
func replacementsOf(c *Cluster, name string) []string {
	i := strings.LastIndexByte(name, '/')
	if c.Versions == nil || i < 0 {
		return nil
	}
	return c.Versions.ListReplacements(strings.TrimPrefix(name[:i], "/"), name[i+1:])
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

// firstMissingKind returns the first kind that the cluster does not serve, unless its replacements suffice.
func (f *CompiledPlacement) firstMissingKind(c *Cluster, suffice func(replacements []string, kind string) bool) (string, bool) {
	if c.APIs == nil {
		return "", false
	}
	for _, name := range f.kinds {
		if _, ok := c.APIs.servedNames[name]; !ok && !suffice(replacementsOf(c, name), name) {
			return name, true
		}
	}
	return "", false
}

func (f *CompiledPlacement) isFixedKind(kind string) bool {
	_, fixed := slices.BinarySearch(f.fixedKinds, kind)
	return fixed
}

// refuseByKinds checks the kinds of the Bundle's items. A kind that the cluster serves in another version, to which
// the hub converts, is left to refuseByVersions, unless it is fixed.
func (f *CompiledPlacement) refuseByKinds(c *Cluster, q question) (refusal, bool) {
	var instead []string
	missing, lacks := f.firstMissingKind(c, func(replacements []string, kind string) bool {
		instead = replacements
		return len(replacements) > 0 && !f.isFixedKind(kind)
	})
	if !lacks {
		return refusal{}, false
	}
	r := refusal{agentReported: true}
	switch {
	case !q.say:
	case len(instead) > 0:
		r.reason = "does not serve " + strings.TrimPrefix(missing, "/") + ", which the bundle holds, and serves " + strings.Join(instead, ", ") + " in place of it: edit the template, which an older hub read, to get it there in another version"
	default:
		r.reason = "does not serve " + strings.TrimPrefix(missing, "/") + ", which the bundle holds: install its definition or API service there, or place it with the bundle"
	}
	return r, true
}

// refuseByVersions checks the kinds that the cluster serves in other versions alone. It refuses where each of these
// versions loses a field of an object.
func (f *CompiledPlacement) refuseByVersions(c *Cluster, q question) (refusal, bool) {
	var losses []string
	missing, lacks := f.firstMissingKind(c, func(replacements []string, kind string) bool {
		losses = nil
		for _, version := range replacements {
			loss := f.versionLosses[kind][version]
			if loss == "" {
				return true
			}
			losses = append(losses, version+" "+loss)
		}
		return len(replacements) == 0 || f.isFixedKind(kind)
	})
	if !lacks {
		return refusal{}, false
	}
	r := refusal{agentReported: true}
	if q.say {
		r.reason = "does not serve " + strings.TrimPrefix(missing, "/") + ", which the bundle holds, and what it serves cannot replace it: " + strings.Join(losses, "; ")
	}
	return r, true
}
