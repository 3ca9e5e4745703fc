package explain

import (
	"encoding/json"
	"fmt"
	"strings"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/rollout"
)

// Override is a rule that set a field.
type Override struct {
	Item   string `json:"item,omitempty"`
	Path   string `json:"path,omitempty"`
	Policy string `json:"policy"`
	Rule   int    `json:"rule"`
	// Description of the rule, as its policy states it.
	Description string `json:"description,omitempty"`
	// Overrider of the rule, such as plaintext[0].
	Overrider string `json:"overrider,omitempty"`
	// Skipped is why the overrider does not apply and was left out.
	Skipped       string       `json:"skipped,omitempty"`
	SkippedReason atoll.Reason `json:"skippedReason,omitempty"`
	// Value as set; nil where the rule took the field away.
	Value any `json:"value,omitempty"`
	// Hidden: the value is a Secret's and not shown.
	Hidden bool `json:"hidden,omitempty"`
}

// ProvenanceByCluster returns the provenance of the rows' manifests, by cluster: contents by
// revision name, views by cluster name. Missing ones are left out, and so are rows that are
// Removing. Rows with equal manifests are rendered once and share the result.
func ProvenanceByCluster(rows map[string]rollout.Row, contents map[string]*atoll.Content, views map[string]atoll.ClusterView) map[string][]overrides.Provenance {
	out, known, renderers := map[string][]overrides.Provenance{}, map[string][]overrides.Provenance{}, map[string]*manifest.Renderer{}
	for cluster, row := range rows {
		content, view := contents[row.Spec.Revision], views[cluster]
		if content == nil || view.Name == "" || row.Spec.Phase == atoll.RowRemoving {
			continue
		}
		renderer, compiled := renderers[row.Spec.Revision]
		if !compiled {
			renderer = manifest.NewRenderer(content)
			renderers[row.Spec.Revision] = renderer
		}
		_, variant := renderer.MatchRules(&view)
		key := row.Spec.RenderKey(variant)
		p, ok := known[key]
		if !ok {
			_, p, _ = renderer.RenderRow(row.Spec, view)
			known[key] = p
		}
		out[cluster] = p
	}
	return out
}

func (in ExplanationInput) visibleOverrides(b Bundle, provenance []overrides.Provenance) (out []Override) {
	for _, p := range provenance {
		if !in.isAboutBundle(b) && p.Item != in.Object || !in.mayRead(p.Item) {
			continue
		}
		o := Override{Path: p.Path, Policy: p.Policy, Rule: p.Rule, Description: p.Description, Overrider: p.Overrider, Skipped: p.Skipped, SkippedReason: p.SkippedReason, Value: p.Value}
		if p.Item.Group == "" && p.Item.Kind == "Secret" {
			o.Value, o.Hidden = nil, true
		}
		if in.isAboutBundle(b) {
			o.Item = p.Item.Kind + "/" + p.Item.Name
		}
		out = append(out, o)
	}
	return out
}

// writeOverrides folds the clusters in which a rule set the same.
func writeOverrides(b *strings.Builder, all []ClusterExplanation, folded int) {
	by := map[string][]string{}
	var order []string
	for _, c := range all {
		for _, o := range c.Overrides {
			line := o.String()
			if by[line] == nil {
				order = append(order, line)
			}
			by[line] = append(by[line], c.Cluster)
		}
	}
	if len(order) == 0 {
		return
	}
	b.WriteString("  Set per cluster:\n")
	for _, line := range order {
		fmt.Fprintf(b, "    %s, in %s\n", line, abbreviateNames(by[line], folded))
	}
}

// String returns text such as `/spec/replicas = 3 by OverridePolicy/shop/eu rule 0 replicas`.
func (o Override) String() string {
	value := "taken away"
	switch {
	case o.Hidden:
		value = "changed"
	case o.Value != nil:
		// Values come out of JSON and go back into it.
		raw, _ := json.Marshal(o.Value)
		value = "= " + string(raw)
	}
	about := ""
	if o.Description != "" {
		about = " (" + phrase.EscapeLine(o.Description) + ")"
	}
	by := strings.TrimSpace(fmt.Sprintf("%s rule %d %s", o.Policy, o.Rule, o.Overrider)) + about
	if o.Overrider == "notHere" {
		return strings.TrimPrefix(fmt.Sprintf("%s not here, by %s rule %d%s", o.Item, o.Policy, o.Rule, about), " ")
	}
	if o.Skipped != "" {
		return strings.TrimPrefix(fmt.Sprintf("%s left out %s: %s", o.Item, by, o.Skipped), " ")
	}
	switch o.Policy {
	case overrides.PolicyPlacement:
		by = "the placement"
	case overrides.PolicyServedVersions:
		by = "what the cluster serves"
	}
	return strings.TrimPrefix(fmt.Sprintf("%s %s %s by %s", o.Item, o.Path, value, by), " ")
}
