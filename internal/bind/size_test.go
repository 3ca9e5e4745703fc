package bind

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

var configMap = atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}

// noise is text that compresses little.
func noise(bytes int) string {
	raw, rng := make([]byte, bytes*3/4), rand.New(rand.NewPCG(uint64(bytes), 1))
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// What admission asks and what is bound answer alike.
func TestCarriesAsPlanDoes(t *testing.T) {
	b := &Binder{Options: Options{Defaults: nil}}
	for bytes, fits := range map[int]bool{100: true, 1_000_000: true, 1_300_000: true, 1_400_000: false} {
		m := newMemory()
		o := m.put(configMap, "1")
		o.Object["data"] = map[string]any{"noise": noise(bytes)}
		out := Plan(PlanInput{Claimed: []atoll.ItemKey{configMap}, Intent: &Intent{}, World: m})
		if err := b.Carries(o); (err == nil) != fits || (len(out.Problems) == 0) != fits {
			t.Errorf("%d bytes: %v, and problems %v", bytes, err, out.Problems)
		} else if err != nil && err.Error() != out.Problems[0].Err.Error() {
			t.Errorf("%d bytes: admission says %v, bind %v", bytes, err, out.Problems[0].Err)
		}
	}
	if err := b.Carries(&unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap"}}); err != nil {
		t.Errorf("what is small: %v", err)
	}
}

func TestRulesThatAreTooLargeTogetherAreNotCut(t *testing.T) {
	m := newMemory()
	m.put(configMap, "1")
	in := PlanInput{Claimed: []atoll.ItemKey{configMap}, Intent: &Intent{}, World: m}
	for i := range 3 {
		o := &v1alpha1.OverridePolicy{}
		o.Name, o.Namespace = fmt.Sprint("o", i), "shop"
		o.Spec.OverrideRules = []v1alpha1.RuleWithCluster{{Overriders: v1alpha1.Overriders{
			AnnotationsOverrider: []v1alpha1.LabelAnnotationOverrider{{Operator: v1alpha1.OverrideAdd, Value: map[string]string{"a": noise(500_000)}}},
		}}}
		in.Overrides = append(in.Overrides, o)
	}
	out := Plan(in)
	if out.Cut || len(out.Problems) != 1 || !strings.Contains(out.Problems[0].openly(), "override rules of all its objects together (3)") {
		t.Errorf("cut %t, %v", out.Cut, out.Problems)
	}
	in.Overrides = in.Overrides[:2]
	if out = Plan(in); !out.Cut || len(out.Problems) > 0 {
		t.Errorf("two of them: cut %t, %v", out.Cut, out.Problems)
	}
}
