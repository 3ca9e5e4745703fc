package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"atoll.dev/atoll/api/crds"
)

// The schema of policies and Bundles refuses stages beside autoStages, options alone and another type, in each kind.
func TestRolloutRulesOfTheSchema(t *testing.T) {
	for _, kind := range []string{"propagationpolicies", "clusterpropagationpolicies", "bundles", "clusterbundles"} {
		spec := readSpecSchema(t, kind)
		stated := spec.Properties["rollout"]
		checkRolloutRules(t, kind, &stated)
	}
	for _, kind := range []string{"rolloutstrategies", "clusterrolloutstrategies"} {
		checkRolloutRules(t, kind, readSpecSchema(t, kind))
	}
}

// rollout and rolloutRef exclude each other.
func TestARolloutExcludesARolloutRef(t *testing.T) {
	for _, kind := range []string{"propagationpolicies", "clusterpropagationpolicies"} {
		spec := readSpecSchema(t, kind)
		for refused, c := range map[string]map[string]any{
			"<nil>": {"rolloutRef": map[string]any{"name": "careful"}},
			"rollout and rolloutRef exclude each other: give one of them": {"rolloutRef": map[string]any{"name": "careful"}, "rollout": map[string]any{"type": "All"}},
		} {
			errs, _ := cel.NewValidator(spec, true, celconfig.PerCallLimit).Validate(t.Context(), field.NewPath("spec"), spec, c, nil, celconfig.RuntimeCELCostBudget)
			if got := fmt.Sprint(errs.ToAggregate()); !strings.Contains(got, refused) {
				t.Errorf("%s: %s, want %q", kind, got, refused)
			}
		}
	}
}

// readSpecSchema reads the schema of the spec of a resource.
func readSpecSchema(t *testing.T, resource string) *structuralschema.Structural {
	t.Helper()
	manifest, err := crds.Files.ReadFile("atoll.dev_" + resource + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(manifest, &crd); err != nil {
		t.Fatal(err)
	}
	stated := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&stated, &internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		t.Fatal(err)
	}
	return structural
}

func checkRolloutRules(t *testing.T, kind string, structural *structuralschema.Structural) {
	t.Helper()
	sizes, stages := []any{int64(1), "10%", "50%"}, []any{map[string]any{"name": "a", "clusters": map[string]any{"names": []any{"oslo"}}}}
	withGate := func(kind string, gate map[string]any) map[string]any {
		return map[string]any{"type": "Staged", "autoStages": sizes, "autoStageOptions": map[string]any{"gatesBefore": []any{map[string]any{"name": "a", kind: gate}}}}
	}
	for name, c := range map[string]struct {
		rollout map[string]any
		refused string
	}{
		"sizes":              {map[string]any{"type": "Staged", "autoStages": sizes}, ""},
		"sizes with options": {map[string]any{"type": "Staged", "autoStages": sizes, "autoStageOptions": map[string]any{"minSuccessTime": "10m"}}, ""},
		"stages":             {map[string]any{"type": "Staged", "stages": stages}, ""},
		"all at once":        {map[string]any{"type": "All", "autoStages": []any{}}, ""},
		"both":               {map[string]any{"type": "Staged", "autoStages": sizes, "stages": stages}, "give stages or autoStages, and not both"},
		"another type":       {map[string]any{"type": "All", "autoStages": sizes}, "need type: Staged"},
		"the type alone":     {map[string]any{"type": "Staged"}, "needs one of them"},
		"options alone":      {map[string]any{"type": "Staged", "stages": stages, "autoStageOptions": map[string]any{}}, "autoStageOptions need autoStages"},
		"a long soak":        {map[string]any{"type": "Staged", "autoStages": sizes, "autoStageOptions": map[string]any{"minSuccessTime": "200h"}}, "from 0s to 168h"},
		"a short deadline":   {map[string]any{"type": "Staged", "autoStages": sizes, "autoStageOptions": map[string]any{"progressDeadline": "1s"}}, "from 10s to 168h"},
		"a window":           {map[string]any{"windows": []any{map[string]any{"type": "Allow", "schedule": "0 22 * * *", "duration": "4h"}}}, ""},
		"a short window":     {map[string]any{"windows": []any{map[string]any{"type": "Allow", "schedule": "0 22 * * *", "duration": "10s"}}}, "from 1m to 744h"},
		"a query":            {withGate("prometheus", map[string]any{"server": "https://h", "query": "up", "successCondition": "result > 0", "interval": "10s"}), ""},
		"a short interval":   {withGate("prometheus", map[string]any{"server": "https://h", "query": "up", "successCondition": "result > 0", "interval": "9s"}), "from 10s to 1h"},
		"a webhook":          {withGate("webhook", map[string]any{"url": "https://h", "secretRef": map[string]any{"name": "s"}, "timeout": "30s"}), ""},
		"a long interval":    {withGate("webhook", map[string]any{"url": "https://h", "secretRef": map[string]any{"name": "s"}, "interval": "2h"}), "from 10s to 1h"},
		"a long timeout":     {withGate("webhook", map[string]any{"url": "https://h", "secretRef": map[string]any{"name": "s"}, "timeout": "31s"}), "from 1s to 30s"},
		"a gate of no kind":  {map[string]any{"type": "Staged", "autoStages": sizes, "autoStageOptions": map[string]any{"gatesBefore": []any{map[string]any{"name": "a"}}}}, "exactly one of"},
	} {
		errs, _ := cel.NewValidator(structural, true, celconfig.PerCallLimit).Validate(context.Background(), field.NewPath("spec", "rollout"), structural, c.rollout, nil, celconfig.RuntimeCELCostBudget)
		if got := fmt.Sprint(errs.ToAggregate()); c.refused == "" && len(errs) > 0 || !strings.Contains(got, c.refused) {
			t.Errorf("%s, %s: %s, want %q", kind, name, got, c.refused)
		}
	}
}
