package binder

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
)

var configMapKind = atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}

// randomText is text that compresses little.
func randomText(bytes int) string {
	raw, rng := make([]byte, bytes*3/4), rand.New(rand.NewPCG(uint64(bytes), 1))
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	return base64.StdEncoding.EncodeToString(raw)
}

func newObject(key atoll.ItemKey) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": key.Kind, "metadata": map[string]any{"namespace": key.Namespace, "name": key.Name, "uid": "1"},
	}}
}

// Admission and the binder answer alike.
func TestCarriesAsPlanDoes(t *testing.T) {
	b := &Binder{Options: Options{Defaults: nil}}
	for bytes, fits := range map[int]bool{100: true, 1_000_000: true, 1_300_000: true, 1_400_000: false} {
		m := &fakeHub{templates: map[atoll.ItemKey]*unstructured.Unstructured{}}
		o := newObject(configMapKind)
		m.put(o)
		o.Object["data"] = map[string]any{"noise": randomText(bytes)}
		world := bundleWorld{&Binder{Options: Options{Templates: m, Kinds: m}, ownership: newOwnershipIndex()}, policymatch.BundleID{}}
		out := bundlecontent.NextContent(bundlecontent.Input{Chosen: []atoll.ItemKey{configMapKind}, Intent: &policymatch.Intent{}, Templates: world, Holders: world, SizeLimits: storeLimits{}})
		if err := b.CheckItemSize(o); (err == nil) != fits || (len(out.Problems) == 0) != fits {
			t.Errorf("%d bytes: %v, and problems %v", bytes, err, out.Problems)
		} else if err != nil && err.Error() != out.Problems[0].Err.Error() {
			t.Errorf("%d bytes: admission says %v, bind %v", bytes, err, out.Problems[0].Err)
		}
	}
	if err := b.CheckItemSize(&unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap"}}); err != nil {
		t.Errorf("what is small: %v", err)
	}
}

func TestRulesThatAreTooLargeTogetherAreNotCut(t *testing.T) {
	m := &fakeHub{templates: map[atoll.ItemKey]*unstructured.Unstructured{}}
	m.put(newObject(configMapKind))
	world := bundleWorld{&Binder{Options: Options{Templates: m, Kinds: m}, ownership: newOwnershipIndex()}, policymatch.BundleID{}}
	in := bundlecontent.Input{Chosen: []atoll.ItemKey{configMapKind}, Intent: &policymatch.Intent{}, Templates: world, Holders: world, SizeLimits: storeLimits{}}
	for i := range 3 {
		o := &v1alpha1.OverridePolicy{}
		o.Name, o.Namespace = fmt.Sprint("o", i), "shop"
		o.Spec.OverrideRules = []v1alpha1.RuleWithCluster{{Overriders: v1alpha1.Overriders{
			AnnotationsOverrider: []v1alpha1.LabelAnnotationOverrider{{Operator: v1alpha1.OverrideAdd, Value: map[string]string{"a": randomText(500_000)}}},
		}}}
		in.NamespaceOverrides = append(in.NamespaceOverrides, o)
	}
	out := bundlecontent.NextContent(in)
	if out.NeedsRevision || len(out.Problems) != 1 || !strings.Contains(redactSecrets(out.Problems[0]), "override rules of all its objects together (3)") {
		t.Errorf("cut %t, %v", out.NeedsRevision, out.Problems)
	}
	in.NamespaceOverrides = in.NamespaceOverrides[:2]
	if out = bundlecontent.NextContent(in); !out.NeedsRevision || len(out.Problems) > 0 {
		t.Errorf("two of them: cut %t, %v", out.NeedsRevision, out.Problems)
	}
}

// failingDefaults cannot read any object.
type failingDefaults struct{}

func (failingDefaults) Default(*unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return nil, errors.New("replicas is no number")
}

// Admission refuses for the size alone: an object that cannot be read is reported by the plan.
func TestAdmissionChecksTheSizeAlone(t *testing.T) {
	b := &Binder{Options: Options{Defaults: failingDefaults{}}}
	if err := b.CheckItemSize(newDeployment("shop", "web", "web:1", 1)); err != nil {
		t.Errorf("an object that cannot be read: %v", err)
	}
}
