package admission

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// policyOf returns a propagation policy with that spec; a cluster policy without a namespace.
func policyOf(t *testing.T, namespace, metadata, spec string) *unstructured.Unstructured {
	t.Helper()
	kind := "PropagationPolicy"
	if namespace == "" {
		kind = "Cluster" + kind
	} else {
		metadata += ", namespace: " + namespace
	}
	return unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: "+kind+", metadata: {name: p"+metadata+"}, spec: {"+spec+"}}")
}

const (
	selectsWeb         = "resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]"
	selectsDeployments = "resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]"
)

// The writer of a policy must be able to read each object that the policy places, and the kinds
// that objects take along.
func TestTheWriterOfAPolicyMustReadWhatItPlaces(t *testing.T) {
	const cannot = "a user that places objects must be able to read them: \"ann\" may not get "
	const web = "ann get deployments.apps shop/web"
	for name, c := range map[string]struct {
		namespace, spec string
		rights          string // separated by commas
		want            string
	}{
		"one object, with the right": {"shop", selectsWeb, web, ""},
		"one object":                 {"shop", selectsWeb, "ann get deployments.apps shop/other", cannot + `"web" of deployments.apps in namespace "shop"`},
		"a kind, with the right":     {"shop", selectsDeployments, "ann get deployments.apps shop/", ""},
		"a kind":                     {"shop", selectsDeployments, web, cannot + `deployments.apps in namespace "shop"`},
		"a kind everywhere":          {"", selectsDeployments, "ann get deployments.apps shop/", cannot + "deployments.apps in all namespaces"},
		"everywhere, with the right": {"", selectsDeployments, "ann get deployments.apps /", ""},
		"in one namespace, by a cluster policy": {"", "resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, namespace: blog}]", "ann get deployments.apps /",
			cannot + `deployments.apps in namespace "blog"`},
		"the second of two": {"shop", "resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}, {apiVersion: v1, kind: ConfigMap, name: c}]", web,
			cannot + `"c" of configmaps in namespace "shop"`},
		"by name, before all of its kind": {"shop", "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: c}, {apiVersion: v1, kind: ConfigMap}]", "",
			cannot + `configmaps in namespace "shop"`},
		"a kind that the hub does not serve yet": {"shop", "resourceSelectors: [{apiVersion: x.dev/v1, kind: Goat}]", "ann get goats.x.dev shop/", ""},
		"what it takes along":                    {"shop", "propagateDeps: true, " + selectsWeb, web, cannot + `configmaps in namespace "shop"`},
		"some of what it takes along": {"shop", "propagateDeps: true, " + selectsWeb, web + ",ann get configmaps shop/,ann get persistentvolumeclaims shop/,ann get secrets shop/",
			cannot + `serviceaccounts in namespace "shop"`},
		"all of what it takes along": {"shop", "propagateDeps: true, " + selectsWeb,
			web + ",ann get configmaps shop/,ann get persistentvolumeclaims shop/,ann get secrets shop/,ann get serviceaccounts shop/", ""},
		"what a cluster policy takes along, where it selects": {"", "propagateDeps: true, resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, namespace: blog}]",
			"ann get deployments.apps blog/,ann get configmaps shop/", cannot + `configmaps in namespace "blog"`},
	} {
		p := newGrantingPlugin(Hub{}, strings.Split(c.rights, ",")...)
		policy := policyOf(t, c.namespace, "", c.spec)
		wantRefusal(t, name, p.Validate(t.Context(), requestOf("ann", policy, nil), nil), atoll.ReasonPermissionMissing, c.want)
	}
}

// An edit that leaves the spec as it is needs no rights on what the policy selects. One that is being
// deleted may lose its finalizers, whatever it holds.
func TestOnlyANewSpecOfAPolicyNeedsRights(t *testing.T) {
	p := newGrantingPlugin(Hub{Sets: fakeSets{}})
	const (
		needed   = `"ann" may not get "web" of deployments.apps in namespace "shop"`
		deleting = ", deletionTimestamp: '2026-01-02T03:04:05Z', finalizers: [example.com/a]"
		outside  = `no cluster "oslo" is in a cluster set that namespace "shop" may place on (asia)`
		onOslo   = selectsWeb + ", placement: {clusterAffinity: {clusterNames: [oslo]}}"
	)
	before := policyOf(t, "shop", "", selectsWeb)
	for name, c := range map[string]struct {
		now, before *unstructured.Unstructured
		reason      atoll.Reason
		want        string
	}{
		"a label":                  {policyOf(t, "shop", ", labels: {a: b}", selectsWeb), before, "", ""},
		"another priority":         {policyOf(t, "shop", "", selectsWeb+", priority: 3"), before, atoll.ReasonPermissionMissing, needed},
		"it is being deleted":      {policyOf(t, "shop", deleting, "groupBy: {labelKey: a b}"), before, "", ""},
		"outside of its sets":      {policyOf(t, "shop", "", onOslo), before, atoll.ReasonOutsideBoundSets, outside},
		"outside of them, created": {policyOf(t, "shop", "", onOslo), nil, atoll.ReasonOutsideBoundSets, outside},
		"outside of them, before":  {policyOf(t, "shop", "", onOslo+", priority: 3"), policyOf(t, "shop", "", onOslo), atoll.ReasonPermissionMissing, needed},
		"a cluster policy": {policyOf(t, "", "", onOslo), nil, atoll.ReasonPermissionMissing,
			`"ann" may not get "web" of deployments.apps in all namespaces`},
	} {
		wantRefusal(t, name, p.Validate(t.Context(), requestOf("ann", c.now, c.before), nil), c.reason, c.want)
	}
}

// A policy that overwrites what others made needs the verb takeover on that policy.
func TestAPolicyThatOverwritesNeedsTheVerbTakeover(t *testing.T) {
	policy := policyOf(t, "shop", "", "conflictResolution: Overwrite, "+selectsWeb)
	const web, takeover = "ann get deployments.apps shop/web", "ann takeover propagationpolicies.atoll.dev shop/p"
	const want = `spec.conflictResolution: Overwrite takes over what others made in members: the verb takeover on propagationpolicies.atoll.dev is needed, which "ann" lacks`
	wantRefusal(t, "without", newGrantingPlugin(Hub{}, web).Validate(t.Context(), requestOf("ann", policy, nil), nil), atoll.ReasonPermissionMissing, want)
	wantRefusal(t, "with", newGrantingPlugin(Hub{}, web, takeover).Validate(t.Context(), requestOf("ann", policy, nil), nil), "", "")
}

// Fields of a policy that could not be honoured are refused with their path.
func TestFieldsOfAPolicyThatAreRefused(t *testing.T) {
	p := newGrantingPlugin(Hub{})
	for spec, want := range map[string]string{
		"placementRef: {name: A}":                                   `spec.placementRef.name: Invalid value: "A": a lowercase RFC 1123 subdomain`,
		"placementRef: {name: a}":                                   "",
		"rolloutRef: {name: A}":                                     `spec.rolloutRef.name: Invalid value: "A": a lowercase RFC 1123 subdomain`,
		"rolloutRef: {name: a, kind: ClusterRolloutStrategy}":       "",
		"groupBy: {labelKey: 'a b'}":                                `spec.groupBy.labelKey: Invalid value: "a b": name part must consist`,
		"groupBy: {labelKey: x.dev/app}":                            "",
		"itemRules: [{ignoreFields: [/spec]}, {ignoreFields: [s]}]": "spec.itemRules[1].ignoreFields[0]: Invalid value: \"s\"",
		"itemRules: [{feedback: [{name: a, jsonPath: .status.a, type: String}], health: [{expression: object.a == 1}], completion: {expression: has(object.b)}}]": "",
		"itemRules: [{resourceSelectors: [{apiVersion: v1, kind: Secret}, {apiVersion: v1, kind: secret}]}]":                                                      `spec.itemRules[0].resourceSelectors[1].kind: Invalid value: "secret": must be the name of one kind`,
		"resourceSelectors: [{apiVersion: v1, kind: Secret, namespace: blog}]":                                                                                    `spec.resourceSelectors[0].namespace: Invalid value: "blog": a policy in namespace "shop" selects only there`,
		"placement: {clusterSets: [A]}":                                         `spec.placement.clusterSets[0]: Invalid value: "A": is not the name of a cluster set`,
		"placement: {clusterTolerations: [{key: a}, {key: a, operator: Like}]}": `spec.placement.clusterTolerations[1].operator: Unsupported value: "Like": supported values: "Equal", "Exists"`,
		"placement: {replicaScheduling: {weightPreference: {staticWeightList: [{weight: 1, targetCluster: {clusterNames: [A]}}]}}}": `spec.placement.replicaScheduling.weightPreference.staticWeightList[0].targetCluster.clusterNames[0]: Invalid value: "A": is not the name of a cluster`,
		"placement: {scores: [{name: Balance}]}": "spec.placement.scores: Invalid value: 1: all clusters that fit are chosen, however they score: give maxClusters or spreadConstraints too",
		"removal: {budget: 0}":                   "",
		"removal: {budget: -1}":                  "spec.removal.budget: Invalid value: -1: must not be negative",
		"removal: {budget: 2147483647}":          "",
		"removal: {budget: 2147483648}":          "spec.removal.budget: Invalid value: 2147483648: must be from 0 to 2147483647",
		"removal: {budget: 0%}":                  "",
		"removal: {budget: 100%}":                "",
		"removal: {budget: 101%}":                `spec.removal.budget: Invalid value: "101%": must be a number or a percentage from 0% to 100%`,
		"removal: {budget: 10}":                  "",
		"removal: {budget: '10'}":                `spec.removal.budget: Invalid value: "10": must be a number or a percentage`,
		"removal: {budget: ''}":                  `spec.removal.budget: Invalid value: "": must be a number or a percentage`,
		"removal: {budget: '0100%'}":             `spec.removal.budget: Invalid value: "0100%": must be a number or a percentage`,
	} {
		policy := policyOf(t, "shop", "", spec)
		err := p.Validate(t.Context(), requestOf("ann", policy, policy), nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "is invalid: "+want)) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
		wantReason(t, err)
	}
}

// Rules of feedback, health and completion are compiled where the spec changes, and not for a change of the metadata.
func TestRulesOfAPolicyThatAreRefused(t *testing.T) {
	p := newGrantingPlugin(Hub{})
	for spec, want := range map[string]string{
		"itemRules: [{feedback: [{name: a, jsonPath: '.status[', type: String}]}]":                             `spec.itemRules[0].feedback[0].jsonPath: Invalid value: ".status[": unterminated array`,
		"itemRules: [{health: [{expression: 'true'}, {expression: '1'}]}]":                                     `spec.itemRules[0].health[1].expression: Invalid value: "1": gives a int, and true or false is needed`,
		"itemRules: [{health: [{expression: 'true', reason: Missing}]}]":                                       `spec.itemRules[0].health[0].reason: Invalid value: "Missing": it is a reason of Atoll`,
		"itemRules: [{completion: {expression: object.}}]":                                                     `spec.itemRules[0].completion.expression: Invalid value: "object.": line 1, column 8: Syntax error`,
		"itemRules: [{completion: {expression: 'true'}, resourceSelectors: [{apiVersion: v1, kind: Secret}]}]": `spec.itemRules[0].resourceSelectors[0]: Forbidden: a rule of feedback, health or completion selects no Secrets`,
	} {
		policy := policyOf(t, "shop", "", spec)
		err := p.Validate(t.Context(), requestOf("ann", policy, nil), nil)
		if err == nil || !strings.Contains(err.Error(), "is invalid: "+want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
		wantReason(t, err)
		if err := p.Validate(t.Context(), requestOf("ann", policy, policy), nil); err != nil {
			t.Errorf("%s: the spec stays, and %v", spec, err)
		}
	}
}

// overrideOf returns an override policy with that spec; a cluster policy without a namespace.
func overrideOf(t *testing.T, namespace, metadata, spec string) *unstructured.Unstructured {
	t.Helper()
	u := policyOf(t, namespace, metadata, spec)
	u.SetKind(strings.Replace(u.GetKind(), "Propagation", "Override", 1))
	return u
}

// dividedWeb is a hub whose Deployments are named web and have divided replicas.
type dividedWeb struct{ Templates }

func (dividedWeb) FirstDividedWithoutReplicaOverrides(namespace string, selectors []v1alpha1.ResourceSelector) (atoll.ItemKey, bool) {
	if len(selectors) == 0 || selectors[0].Kind != "Deployment" {
		return atoll.ItemKey{}, false
	}
	return atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: namespace, Name: "web"}, true
}

func (dividedWeb) TemplateKinds(string) []schema.GroupKind { return nil }

// Fields of an override policy that could not be honoured are refused with their path. A
// ClusterOverridePolicy may change more than an OverridePolicy.
func TestFieldsOfAnOverridePolicyThatAreRefused(t *testing.T) {
	p := newGrantingPlugin(Hub{Templates: dividedWeb{}})
	const (
		labels    = "overrideRules: [{overriders: {mergePatch: {metadata: {labels: {a: b}}}}}]"
		data      = "overrideRules: [{overriders: {mergePatch: {metadata: {labels: {a: b}}}}}, {overriders: {mergePatch: {data: {a: null}}}}]"
		secrets   = "resourceSelectors: [{apiVersion: v1, kind: Secret}], "
		likeAny   = "[{targetCluster: {celSelector: \"cluster.name == 'x'\"}, overriders: {notHere: true}}]"
		badTarget = "overrideRules: [{overriders: {notHere: true}}, {targetCluster: {clusterSets: [A]}, overriders: {notHere: true}}]"
	)
	for _, c := range []struct{ namespace, spec, want string }{
		{"shop", secrets + labels, ""},
		{"shop", secrets + data, "spec.overrideRules[1].overriders: Forbidden: only a ClusterOverridePolicy may change the data of Secrets, which resourceSelectors chooses"},
		{"", secrets + data, ""},
		{"shop", "resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], " + data, ""},
		{"shop", "resourceSelectors: [{apiVersion: rbac.authorization.k8s.io/v1, kind: Role}], " + labels, "spec.resourceSelectors[0]: Forbidden: only a ClusterOverridePolicy may change a Role"},
		{"", "resourceSelectors: [{apiVersion: rbac.authorization.k8s.io/v1, kind: Role}], " + labels, ""},
		{"shop", "resourceSelectors: [{apiVersion: v1, kind: Secret}, {apiVersion: '*', kind: '*'}], " + labels,
			"spec.resourceSelectors[1].kind: Forbidden: an override policy names its kinds; without resourceSelectors it selects everything"},
		{"shop", "resourceSelectors: [{apiVersion: v1, kind: Secret, namespace: blog}], " + labels, "spec.resourceSelectors[0].namespace: Invalid value: \"blog\": a policy in namespace \"shop\" selects only there"},
		{"shop", secrets + "overrideRules: [{overriders: {}}]", "spec.overrideRules[0].overriders: Required value: a rule without overriders does nothing"},
		{"shop", secrets + "appliedRules: All, overrideRules: [{overriders: {}}]", "spec.overrideRules[0].overriders: Required value: a rule without overriders does nothing"},
		{"shop", secrets + "appliedRules: First, overrideRules: [{overriders: {}}]", ""},
		{"shop", secrets + "overrideRules: [{overriders: {fieldOverrider: []}}]", "spec.overrideRules[0].overriders: Required value: a rule without overriders does nothing"},
		{"shop", secrets + badTarget, "spec.overrideRules[1].targetCluster.clusterSets[0]: Invalid value: \"A\": is not the name of a cluster set"},
		{"shop", secrets + "overrideRules: " + likeAny, ""},
		{"shop", "resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], overrideRules: [{overriders: {mergePatch: 3}}]", "spec.overrideRules[0].overriders.mergePatch: Invalid value: a merge patch has to be an object"},
		{"shop", "resourceSelectors: [{apiVersion: example.com/v1, kind: Thing}], overrideRules: [{overriders: {strategicMerge: {spec: {}}}}]",
			"spec.overrideRules[0].overriders.strategicMerge: Forbidden: Thing.example.com, which resourceSelectors chooses, is no built-in kind, so that nothing defines how its lists are merged: use mergePatch"},
		{"shop", selectsDeployments + ", overrideRules: [{overriders: {replicas: 3}}]",
			"spec.overrideRules[0].overriders.replicas: Forbidden: the placement of Deployment web divides its replicas, so that no override can set them, unless its replicaScheduling has replicaOverrides: Allow"},
		{"shop", selectsDeployments + ", " + labels, ""},
		{"shop", "resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], overrideRules: [{overriders: {replicas: 3}}]", ""},
	} {
		policy := overrideOf(t, c.namespace, "", c.spec)
		err := p.Validate(t.Context(), requestOf("ann", policy, policy), nil)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), "is invalid: "+c.want)) {
			t.Errorf("%s in %q: %v, want %q", c.spec, c.namespace, err, c.want)
		}
		wantReason(t, err)
	}
}

// A new spec of an override policy is checked for fields that objects do not have, for clusters outside
// of the namespace's sets, and for the writer's right to read what it changes.
func TestOnlyANewSpecOfAnOverridePolicyNeedsRights(t *testing.T) {
	const (
		label    = "overriders: {mergePatch: {metadata: {labels: {a: b}}}}"
		rule     = ", overrideRules: [{" + label + "}]"
		onOslo   = ", overrideRules: [{targetCluster: {clusterNames: [oslo]}, " + label + "}]"
		typo     = ", overrideRules: [{overriders: {mergePatch: {spec: {resourcez: 1}}}}]"
		deleting = ", deletionTimestamp: '2026-01-02T03:04:05Z', finalizers: [example.com/a]"
		needed   = `"ann" may not get "web" of deployments.apps in namespace "shop"`
		outside  = `spec.overrideRules[0].targetCluster.clusterNames[0]: Forbidden: no cluster "oslo" is in a cluster set that namespace "shop" may place on (asia)`
	)
	in := func(metadata, spec string) *unstructured.Unstructured { return overrideOf(t, "shop", metadata, spec) }
	p := newGrantingPlugin(Hub{Sets: fakeSets{}, Templates: dividedWeb{}}, "reader get deployments.apps shop/web")
	for name, c := range map[string]struct {
		who         string
		now, before *unstructured.Unstructured
		reason      atoll.Reason
		want        string
	}{
		"created by a reader":     {"reader", in("", selectsWeb+rule), nil, "", ""},
		"created":                 {"ann", in("", selectsWeb+rule), nil, atoll.ReasonPermissionMissing, needed},
		"a label":                 {"ann", in(", labels: {a: b}", selectsWeb+rule), in("", selectsWeb+rule), "", ""},
		"another priority":        {"ann", in("", selectsWeb+rule+", priority: 3"), in("", selectsWeb+rule), atoll.ReasonPermissionMissing, needed},
		"of a cluster outside":    {"reader", in("", selectsWeb+onOslo), in("", selectsWeb+rule), atoll.ReasonOutsideBoundSets, outside},
		"of one that was there":   {"reader", in("", selectsWeb+onOslo+", priority: 3"), in("", selectsWeb+onOslo), "", ""},
		"it is being deleted":     {"ann", in(deleting, selectsWeb+typo), nil, "", ""},
		"of everything":           {"reader", in("", "overrideRules: [{"+label+"}]"), nil, atoll.ReasonPermissionMissing, `"reader" may not get configmaps in namespace "shop"`},
		"of one namespace's kind": {"reader", overrideOf(t, "", "", selectsWeb+rule), nil, atoll.ReasonPermissionMissing, `"reader" may not get "web" of deployments.apps in all namespaces`},
	} {
		wantRefusal(t, name, p.Validate(t.Context(), requestOf(c.who, c.now, c.before), nil), c.reason, c.want)
	}
	err := p.Validate(t.Context(), requestOf("reader", in("", selectsWeb+typo), nil), nil)
	if err == nil || !strings.Contains(err.Error(), "is invalid: spec.overrideRules[0].overriders.mergePatch: Invalid value: ") {
		t.Errorf("a field that Deployments do not have: %v", err)
	}
	wantRefusal(t, "such a field, as before", p.Validate(t.Context(), requestOf("ann", in(", labels: {a: b}", selectsWeb+typo), in("", selectsWeb+typo)), nil), "", "")
}
