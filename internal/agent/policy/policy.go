// Package policy decides what the administrator of a member lets its agent do for a hub: the
// meaning of an AgentPolicy.
//
// Contract: a pure core. For a policy and an object, or a request, it returns nothing, or a
// refusal for the status of a row: the refused act, the field, and the person that must act. A nil
// *Policy is that of a member without one. It refuses only what no hub may apply: AgentPolicies,
// their definition, APIServices that would serve them, and the agent's own namespace. A policy
// that cannot be understood refuses everything (DenyAllPolicy). Policies are immutable, and safe
// for concurrent use.
package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"atoll.dev/atoll/api/agent/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/changewindow"
)

// Policy that is understood.
type Policy struct {
	spec v1alpha1.AgentPolicySpec
	// name of the policy and its generation, for readers of a refusal.
	name string
	// selector of namespaces; nil: none.
	selector labels.Selector
	// windows in which changes may start; nil: at any time.
	windows *changewindow.Windows
	// closed is why everything is refused; empty: it is not.
	closed string
}

// ParsePolicy parses a policy from its JSON. A policy that cannot be understood refuses everything.
func ParsePolicy(text []byte) *Policy {
	object, strict, err := decodeAgentPolicy(text)
	if err != nil {
		return DenyAllPolicy(fmt.Sprintf("it cannot be read: %v", err))
	}
	if len(strict) > 0 {
		return DenyAllPolicy(fmt.Sprintf("it has values that this agent (%s) does not support, %v: update the agent, or take these out", atoll.Version, strict[0]))
	}
	p, err := compilePolicy(object)
	if err != nil {
		return DenyAllPolicy(err.Error())
	}
	return p
}

// decodeAgentPolicy decodes strictly all but the metadata, which is Kubernetes' to extend.
func decodeAgentPolicy(text []byte) (object *v1alpha1.AgentPolicy, strict []error, err error) {
	var meta struct {
		Metadata v1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(text, &meta); err != nil {
		return nil, nil, err
	}
	var rest map[string]json.RawMessage
	if err := json.Unmarshal(text, &rest); err != nil {
		return nil, nil, err
	}
	delete(rest, "metadata")
	if text, err = json.Marshal(rest); err != nil {
		return nil, nil, err
	}
	object = &v1alpha1.AgentPolicy{}
	strict, err = kjson.UnmarshalStrict(text, object)
	object.ObjectMeta = meta.Metadata
	return object, strict, err
}

// DenyAllPolicy returns the policy for a member whose own policy exists and could not be read.
func DenyAllPolicy(why string) *Policy {
	return &Policy{closed: "AgentPolicy " + v1alpha1.AgentPolicyName + " of this cluster is not understood, so nothing is allowed until its administrator mends it: " + why}
}

func compilePolicy(o *v1alpha1.AgentPolicy) (*Policy, error) {
	p := &Policy{spec: o.Spec, name: fmt.Sprintf("AgentPolicy %s (generation %d)", o.Name, o.Generation)}
	s := &o.Spec
	for _, err := range []error{checkModes(s), checkReachRequests(s.Reach), checkNodeLabels(s.NodeLabels), checkServiceAccounts(s.ServiceAccounts)} {
		if err != nil {
			return nil, err
		}
	}
	var err error
	if s.Namespaces != nil && s.Namespaces.Selector != nil {
		if p.selector, err = v1.LabelSelectorAsSelector(s.Namespaces.Selector); err != nil {
			return nil, fmt.Errorf("spec.namespaces.selector: %w", err)
		}
	}
	p.windows, err = compileChanges(s.Changes)
	return p, err
}

func checkModes(s *v1alpha1.AgentPolicySpec) error {
	switch {
	case !slices.Contains([]v1alpha1.ClusterScoped{"", v1alpha1.ClusterScopedAllow, v1alpha1.ClusterScopedNamespacesOnly, v1alpha1.ClusterScopedDeny}, s.ClusterScoped):
		return fmt.Errorf("spec.clusterScoped: %q has no meaning", s.ClusterScoped)
	case !slices.Contains([]v1alpha1.Removal{"", v1alpha1.RemovalAllow, v1alpha1.RemovalDeny}, s.Removal):
		return fmt.Errorf("spec.removal: %q has no meaning", s.Removal)
	case !slices.Contains([]v1alpha1.NamedServiceAccount{"", v1alpha1.NamedServiceAccountOptional, v1alpha1.NamedServiceAccountRequired, v1alpha1.NamedServiceAccountOwnNamespace}, s.NamedServiceAccount):
		return fmt.Errorf("spec.namedServiceAccount: %q has no meaning", s.NamedServiceAccount)
	}
	return nil
}

func checkServiceAccounts(accounts []v1alpha1.ServiceAccount) error {
	for _, a := range accounts {
		if a.Name == "" || len(a.Namespaces) == 0 {
			return errors.New("spec.serviceAccounts: each needs a name and namespaces")
		}
	}
	return nil
}

func checkReachRequests(reach *v1alpha1.Reach) error {
	if reach == nil || reach.Requests == nil {
		return nil
	}
	for _, r := range *reach.Requests {
		if !slices.Contains([]v1alpha1.Request{v1alpha1.RequestRead, v1alpha1.RequestLogs, v1alpha1.RequestWrite, v1alpha1.RequestConnect}, r) {
			return fmt.Errorf("spec.reach.requests: %q has no meaning", r)
		}
	}
	return nil
}

func checkNodeLabels(keys []string) error {
	if len(keys) > v1alpha1.MaxNodeLabels {
		return fmt.Errorf("spec.nodeLabels: has %d keys, and at most %d are reported", len(keys), v1alpha1.MaxNodeLabels)
	}
	for _, key := range keys {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			return fmt.Errorf("spec.nodeLabels: %q is no key of a label: %s", key, wrong[0])
		}
	}
	return nil
}

// NodeLabels returns the keys of the node labels that the agent reports. isKnown is false while the policy is not
// understood: what is reported stays then.
func (p *Policy) NodeLabels() (keys []string, isKnown bool) {
	switch {
	case p == nil:
		return nil, true
	case p.closed != "":
		return nil, false
	}
	return p.spec.NodeLabels, true
}

// Equal reports whether both have the same fields, in the same words.
func (p *Policy) Equal(other *Policy) bool {
	if p == nil || other == nil {
		return p == other
	}
	mine, err1 := json.Marshal(p.spec)
	theirs, err2 := json.Marshal(other.spec)
	return err1 == nil && err2 == nil && string(mine) == string(theirs) && p.name == other.name && p.closed == other.closed
}

// String describes the policy for logs.
func (p *Policy) String() string {
	switch {
	case p == nil:
		return "none"
	case p.closed != "":
		return p.closed
	}
	return p.name
}

// ServiceAccount returns the ServiceAccount in whose name is written in the namespace; empty: in the agent's own.
func (p *Policy) ServiceAccount(namespace string) string {
	if p == nil || namespace == "" {
		return ""
	}
	for _, a := range p.spec.ServiceAccounts {
		if matchAny(a.Namespaces, namespace) {
			return a.Name
		}
	}
	return ""
}
