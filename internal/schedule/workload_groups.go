package schedule

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// workloadAffinity refuses new clusters of a Bundle by where the other members of its groups are. A cluster in which the
// Bundle has a row stays open to it, in whichever phase the row is: the terms remove and move nothing. A row of a move that
// waits is such a row, so that no move of another Bundle takes away the place that it moves to.

// The filters of workloadAffinity.
const (
	FilterTogether = "workloadAffinity.affinity"
	FilterApart    = "workloadAffinity.antiAffinity"
)

// WorkloadGroup is a group of workloadAffinity without the Bundle itself.
type WorkloadGroup struct {
	Key, Value string
	// KeepsApart: the Bundle is kept apart from the others; else they are kept together.
	KeepsApart bool
	// Others are the clusters of other members. A group that keeps apart counts each cluster in which one is or is to be.
	// A group that keeps together counts each cluster in which one stays.
	Others map[string]bool
	// NameAt names another member in one of these clusters.
	NameAt func(cluster string) MemberName
}

// MemberName names a member of a group in explanations.
type MemberName struct {
	Text string
	// Key of the template that the text names; zero: it names none.
	Key atoll.ItemKey
}

// WorkloadGroups are the groups of a Bundle.
type WorkloadGroups struct {
	List []WorkloadGroup
	// Terms of the placement, for explanations.
	Terms []WorkloadTerm
}

// AddGroups adds a group for each value of each term, in the order of the terms.
func (g *WorkloadGroups) AddGroups(groupOf func(key, value string, apart bool) WorkloadGroup) {
	for i := range g.Terms {
		t := &g.Terms[i]
		for _, value := range t.Values {
			g.List = append(g.List, groupOf(t.Key, value, t.KeepsApart()))
		}
	}
}

// memberInText finds the name of a member in a sentence about a refusal.
var memberInText = regexp.MustCompile(`(kept (?:apart from|together with) )(.+?)(, which runs )`)

// HideMembers returns a sentence in which no other member is named whose template the reader may not read. A name that this
// decision did not give is hidden, too.
func (d *Decision) HideMembers(text string, mayRead func(atoll.ItemKey) bool) string {
	if mayRead == nil || !strings.Contains(text, "kept ") {
		return text
	}
	return memberInText.ReplaceAllStringFunc(text, func(found string) string {
		parts := memberInText.FindStringSubmatch(found)
		if key, has := d.members[parts[2]]; has && (key == atoll.ItemKey{} || mayRead(key)) {
			return found
		}
		return parts[1] + "another member of the group" + parts[3]
	})
}

// readMemberNames returns the templates of the members that explanations of a decision can name, by these names.
func readMemberNames(groups []WorkloadGroup) map[string]atoll.ItemKey {
	out := map[string]atoll.ItemKey{}
	for i := range groups {
		for cluster := range groups[i].Others {
			name := groups[i].NameAt(cluster)
			out[name.Text] = name.Key
		}
	}
	return out
}

// WorkloadTerm explains a term of workloadAffinity.
type WorkloadTerm struct {
	// Term is affinity or antiAffinity.
	Term string `json:"term"`
	Key  string `json:"key"`
	// Values of the label, each of which names a group. Without one the term does nothing.
	Values []string `json:"values,omitempty"`
}

// Sentence explains the term in one sentence.
func (t WorkloadTerm) Sentence() string {
	if len(t.Values) == 0 {
		return fmt.Sprintf("workloadAffinity.%s does nothing: no template of the Bundle has the label %s", t.Term, t.Key)
	}
	groups := make([]string, len(t.Values))
	for i, v := range t.Values {
		groups[i] = t.Key + "=" + v
	}
	relation := "together with"
	if t.Term == termApart {
		relation = "apart from"
	}
	return fmt.Sprintf("workloadAffinity.%s keeps it %s the other members of %s", t.Term, relation, formatNames(groups))
}

const termTogether, termApart = "affinity", "antiAffinity"

// WorkloadTermsOf returns the terms of a placement, with the values that the content's templates have; nil: it has none.
func WorkloadTermsOf(a *v1alpha1.WorkloadAffinity, labels TemplateLabels) (out []WorkloadTerm) {
	if a == nil {
		return nil
	}
	if a.Affinity != nil {
		out = append(out, WorkloadTerm{termTogether, a.Affinity.GroupByLabelKey, labels.ValuesOf(a.Affinity.GroupByLabelKey)})
	}
	if a.AntiAffinity != nil {
		out = append(out, WorkloadTerm{termApart, a.AntiAffinity.GroupByLabelKey, labels.ValuesOf(a.AntiAffinity.GroupByLabelKey)})
	}
	return out
}

// KeepsApart reports whether the term is antiAffinity.
func (t *WorkloadTerm) KeepsApart() bool { return t.Term == termApart }

// TemplateLabels are the labels of the templates of a Bundle that its policy selects.
type TemplateLabels struct {
	// values by key, sorted.
	values map[string][]string
	// Name of the first template with a label, a workload if there is one; empty: there is none that may be named.
	Name MemberName
}

// ValuesOf returns the values of a label, sorted.
func (l TemplateLabels) ValuesOf(key string) []string { return l.values[key] }

// NameMember returns the name of a Bundle with these templates. Without a template that may be named, it is the Bundle's own.
func (l TemplateLabels) NameMember(bundle string) MemberName {
	if l.Name.Text == "" {
		return MemberName{Text: "Bundle " + bundle}
	}
	return l.Name
}

// workloadKinds are the kinds that name a Bundle before others.
var workloadKinds = map[string]bool{"Deployment": true, "StatefulSet": true, "DaemonSet": true, "ReplicaSet": true, "Job": true, "CronJob": true, "Pod": true}

// LabelsOfTemplates reads the labels of the templates. Dependencies do not count: their labels are of other workloads, too.
func LabelsOfTemplates(content *atoll.Content) (TemplateLabels, error) {
	all, named := TemplateLabels{values: map[string][]string{}}, false
	if content == nil {
		return all, nil
	}
	for i := range content.Items {
		item := &content.Items[i]
		if item.Dependency {
			continue
		}
		labels, err := item.ParseLabels()
		if err != nil {
			return TemplateLabels{}, fmt.Errorf("labels of %s: %w", item.Key, err)
		}
		if len(labels) == 0 {
			continue
		}
		for key, value := range labels {
			all.values[key] = append(all.values[key], value)
		}
		if isWorkload := workloadKinds[item.Key.Kind]; !item.Key.IsSecret() && !named && (isWorkload || all.Name.Text == "") {
			all.Name, named = MemberName{formatTemplate(item.Key), item.Key}, isWorkload
		}
	}
	for key, values := range all.values {
		slices.Sort(values)
		all.values[key] = slices.Compact(values)
	}
	return all, nil
}

func formatTemplate(key atoll.ItemKey) string {
	if key.Namespace == "" {
		return key.Kind + " " + key.Name
	}
	return key.Kind + " " + key.Namespace + "/" + key.Name
}

// KeepsGroup reports whether the members of a group in the cluster are to stay there. A member that leaves such a cluster may
// be the first in another one, and the others follow it.
func KeepsGroup(c *Cluster) bool {
	return !c.Deleting && c.Removal == "" && !slices.ContainsFunc(c.Taints, func(t v1alpha1.Taint) bool { return t.IsDrain() || t.IsOfLoss() })
}

// findRefusal returns the first group that refuses a cluster to the Bundle; nil: none does.
func (g *WorkloadGroups) findRefusal(cluster string) *WorkloadGroup {
	for i := range g.List {
		one := &g.List[i]
		if one.KeepsApart && one.Others[cluster] || !one.KeepsApart && len(one.Others) > 0 && !one.Others[cluster] {
			return one
		}
	}
	return nil
}

// filterName returns the filter of the group.
func (g *WorkloadGroup) filterName() string {
	if g.KeepsApart {
		return FilterApart
	}
	return FilterTogether
}

// explainRefusal returns why the group refuses a cluster.
func (g *WorkloadGroup) explainRefusal(cluster string) string {
	if g.KeepsApart {
		return fmt.Sprintf("kept apart from %s, which runs here (group %s=%s)", g.NameAt(cluster).Text, g.Key, g.Value)
	}
	return g.explainElsewhere()
}

// explainElsewhere returns where the group is.
func (g *WorkloadGroup) explainElsewhere() string {
	clusters := slices.Sorted(maps.Keys(g.Others))
	return fmt.Sprintf("kept together with %s, which runs in %s (group %s=%s)", g.NameAt(clusters[0]).Text, formatNames(clusters), g.Key, g.Value)
}

// GroupRefusal counts the clusters that workloadAffinity alone refuses.
type GroupRefusal struct {
	// Clusters is how many.
	Clusters int
	// cluster is the first by name, and group refuses it.
	cluster string
	group   *WorkloadGroup
}

// Reason returns the enumerated reason.
func (r *GroupRefusal) Reason() atoll.Reason { return reasonByFilter[r.group.filterName()] }

// String names another member and its cluster.
func (r *GroupRefusal) String() string {
	if !r.group.KeepsApart {
		return r.group.explainElsewhere()
	}
	text := fmt.Sprintf("kept apart from %s, which runs in %s (group %s=%s)", r.group.NameAt(r.cluster).Text, r.cluster, r.group.Key, r.group.Value)
	if more := r.Clusters - 1; more > 0 {
		text += fmt.Sprintf(", and from others in %d more", more)
	}
	return text
}

// addRefusal counts one more cluster.
func (r *GroupRefusal) addRefusal(cluster string, group *WorkloadGroup) *GroupRefusal {
	if r == nil {
		return &GroupRefusal{Clusters: 1, cluster: cluster, group: group}
	}
	if r.Clusters++; strings.Compare(cluster, r.cluster) < 0 {
		r.cluster, r.group = cluster, group
	}
	return r
}

// findGroupRefusal returns the group that refuses a cluster; nil: none does, or the Bundle has a row there.
func (in *Input) findGroupRefusal(c *Cluster) *WorkloadGroup {
	if in.WorkloadGroups == nil {
		return nil
	}
	if row, has := in.Rows[c.Name]; has && row.UID == c.UID && row.Phase != atoll.RowVacant {
		return nil
	}
	return in.WorkloadGroups.findRefusal(c.Name)
}

// applyGroupFilter refuses, by workloadAffinity, clusters that the other filters admit.
func (d *groupDecider) applyGroupFilter(c *Cluster, v *Verdict) {
	if d.input.WorkloadGroups == nil || v.Outcome != OutcomePlaced {
		return
	}
	g := d.input.findGroupRefusal(c)
	if g == nil {
		return
	}
	d.GroupRefusal = d.GroupRefusal.addRefusal(c.Name, g)
	v.Outcome, v.PlacementFingerprint, v.Filter = OutcomeOut, "", g.filterName()
	if !d.input.SkipExplanations {
		v.Reason = g.explainRefusal(c.Name)
	}
}

// admitsInGroups reports whether workloadAffinity admits a cluster that the other filters admit. It counts those that it
// refuses.
func (in *Input) admitsInGroups(c *Cluster) bool {
	g := in.findGroupRefusal(c)
	if g != nil {
		in.groupRefusal = in.groupRefusal.addRefusal(c.Name, g)
	}
	return g == nil
}

// findRefusalOfGroups returns what workloadAffinity refused in any of the trials; nil: nothing.
func (t *groupTrials) findRefusalOfGroups() *GroupRefusal {
	for _, one := range t.byGroup {
		if one != nil && one.decision.GroupRefusal != nil {
			return one.decision.GroupRefusal
		}
	}
	return t.in.groupRefusal
}

// WaitsForGroup reports whether the decision may differ when other members of the Bundle's groups come or leave.
func (d *Decision) WaitsForGroup(limitsClusters bool) bool {
	return d.GroupRefusal != nil && (!limitsClusters || d.NoFit || d.WantsMore || d.AwaitsFailback)
}
