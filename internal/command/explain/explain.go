// Package explain is the command `atoll explain`: why an object is where it is, its state in each
// cluster, what it waits for, and the person or component that must act.
//
// Contract: the hub answers, with the functions that act; the command only requests and prints. The
// text is the hub's own, so that it is never older than the hub. A user without the right to get
// the object gets nothing.
package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
)

type explainOptions struct {
	flags   *client.ConnectionFlags
	format  output.Format
	cluster string
	all     bool
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &explainOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "explain KIND/NAME [-n NAMESPACE]",
		Short: "Explain why an object is where it is, and what it waits for",
		Long: `Explain where an object is and why, and what it waits for.

The answer begins with the verdict. Then it names the policy or annotation that won and
why the others lost, the object in every cluster (its revision, state, what it waits
for, since when, and the person or component that must act), why the other clusters are
left out, and which override rule set which field.

KIND/NAME may be any object on the hub, by kind, plural or short name, a Namespace
(what its annotation places and leaves out), a Bundle, a policy (what it selects and
places), or a Placement (what it chooses). You see the objects that you may get.`,
		Example: `  atoll explain deployment/web -n shop
  atoll explain deploy web
  atoll explain deployments.apps/web --cluster tokyo-1
  atoll explain namespace/shop
  atoll explain policy/web -n shop
  atoll explain bundle/web -n shop -o json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			argument := args[0]
			if len(args) == 2 {
				argument += "/" + args[1]
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), argument)
		},
	}
	flags.AddNamespace(cmd.Flags())
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "only this cluster")
	cmd.Flags().BoolVar(&o.all, "all", false, "leave nothing of a large fleet to a count")
	o.format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

func (o *explainOptions) run(ctx context.Context, out io.Writer, argument string) error {
	c, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	answer, err := o.fetchExplanation(ctx, c, argument)
	if err != nil {
		return err
	}
	if !o.isStructured() {
		_, err := out.Write(answer)
		return err
	}
	var value any
	if err := json.Unmarshal(answer, &value); err != nil {
		return fmt.Errorf("%s answered with what is no JSON; is this the kubeconfig of a hub? %w", c.Config.Host, err)
	}
	_, err = o.format.PrintStructured(out, value)
	return err
}

func (o *explainOptions) isStructured() bool {
	return o.format.IsFormat("json") || o.format.IsFormat("yaml")
}

// fetchExplanation returns the answer of the hub. A policy that is only called policy is one of the namespace, or else a
// cluster policy.
func (o *explainOptions) fetchExplanation(ctx context.Context, c *client.Connection, argument string) ([]byte, error) {
	name, short := strings.CutPrefix(argument, "policy/")
	if !short {
		return o.requestExplanation(ctx, c, argument)
	}
	answer, err := o.requestExplanation(ctx, c, "propagationpolicy/"+name)
	if !errors.Is(err, errNotFound) {
		return answer, err
	}
	if answer, cluster := o.requestExplanation(ctx, c, "clusterpropagationpolicy/"+name); !errors.Is(cluster, errNotFound) {
		return answer, cluster
	}
	return nil, fmt.Errorf("%w policy %s: neither a PropagationPolicy in namespace %q nor a ClusterPropagationPolicy; another namespace is chosen with -n", errNotFound, name, c.Namespace)
}

func (o *explainOptions) requestExplanation(ctx context.Context, c *client.Connection, argument string) ([]byte, error) {
	object, err := c.ParseObject(ctx, argument)
	if err != nil {
		return nil, err
	}
	request := c.RequestAbout(atoll.ExplainPath, object)
	if o.cluster != "" {
		request.Param("cluster", o.cluster)
	}
	if !o.isStructured() {
		request.Param("output", "text").Param("all", strconv.FormatBool(o.all))
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, describeRequestError(c, object, argument, err)
	}
	answer, err := result.Raw()
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.Config.Host, err)
	}
	return answer, nil
}

// errNotFound: the hub has no such object.
var errNotFound = errors.New("the hub has no")

// describeRequestError returns what to do about the hub's refusal.
func describeRequestError(c *client.Connection, object client.Object, argument string, err error) error {
	if !apierrors.IsNotFound(err) {
		return c.ExplainError(err)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name == object.Name {
		where := ""
		if object.Namespace != "" {
			where = fmt.Sprintf(" in namespace %q; another namespace is chosen with -n", object.Namespace)
		}
		return fmt.Errorf("%w %s%s", errNotFound, argument, where)
	}
	return fmt.Errorf("%s does not answer why: it is no hub, or one older than this command (%w)", c.Config.Host, err)
}
