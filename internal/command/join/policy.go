package join

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"atoll.dev/atoll/deploy"
	"atoll.dev/atoll/internal/command/client"
)

// servedTimeout limits the wait until the member serves a definition that was just applied.
const servedTimeout = 30 * time.Second

// installObjects applies the objects. The AgentPolicy is there before the agent runs.
func (o *joinOptions) installObjects(ctx context.Context, c *client.Connection, objects []*unstructured.Unstructured, out io.Writer) error {
	var first, agent []*unstructured.Unstructured
	for _, u := range objects {
		if u.GetKind() == "Deployment" {
			agent = append(agent, u)
		} else {
			first = append(first, u)
		}
	}
	if err := apply(ctx, c, first); err != nil {
		return err
	}
	if err := o.createAgentPolicy(ctx, c, out); err != nil {
		return err
	}
	return apply(ctx, c, agent)
}

// defaultAgentPolicy decodes deploy/agent-policy.yaml.
func defaultAgentPolicy() (*unstructured.Unstructured, error) {
	objects, err := decodeDeployFile("agent-policy.yaml", deploy.AgentPolicy)
	if err == nil && len(objects) != 1 {
		err = fmt.Errorf("deploy/agent-policy.yaml: want one object, have %d", len(objects))
	}
	if err != nil {
		return nil, err
	}
	return objects[0], nil
}

// createAgentPolicy creates the default AgentPolicy. One that exists stays unchanged.
func (o *joinOptions) createAgentPolicy(ctx context.Context, c *client.Connection, out io.Writer) error {
	if !o.policy {
		return nil
	}
	u, err := defaultAgentPolicy()
	if err != nil {
		return err
	}
	kinds, exists := c.ServedKinds(), false
	last := error(nil)
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, servedTimeout, true, func(ctx context.Context) (bool, error) {
		mapping, err := kinds.MappingFor(ctx, u.GroupVersionKind())
		if err == nil {
			_, err = c.Dynamic.Resource(mapping.Resource).Create(ctx, u, metav1.CreateOptions{FieldManager: "atoll-join"})
		}
		exists = apierrors.IsAlreadyExists(err)
		if exists {
			return true, nil
		}
		if last = err; meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return false, nil // the definition is not served yet
		}
		return err == nil, err
	})
	switch {
	case err != nil && last != nil:
		return fmt.Errorf("create AgentPolicy %s, which --policy=false leaves out: %w", u.GetName(), c.ExplainError(last))
	case err != nil:
		return err
	case exists:
		_, err = fmt.Fprintf(out, "AgentPolicy %s exists, and stays unchanged\n", u.GetName())
	default:
		_, err = fmt.Fprintf(out, "AgentPolicy %s keeps the hub out of namespaces kube-*; to let it in: kubectl edit agentpolicy %[1]s\n", u.GetName())
	}
	return err
}

// printPolicyHint prints the command that creates the default AgentPolicy. The printed manifest
// cannot contain it: an apply would overwrite the administrator's, and fails before the definition
// is served.
func (o *joinOptions) printPolicyHint(out io.Writer) error {
	if !o.policy {
		return nil
	}
	u, err := defaultAgentPolicy()
	if err != nil {
		return err
	}
	text, err := json.Marshal(u.Object)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, `After the manifest is applied, keep the hub out of namespaces kube-* of the member. This never
overwrites an AgentPolicy that exists:

  echo '%s' | kubectl create -f -

`, text)
	return err
}
