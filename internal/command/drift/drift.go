// Package drift is the command `atoll drift`: where objects that clusters only observe differ from their
// templates.
//
// Contract: nothing is written, and no cluster gets a request: the hub answers from the clusters' last reports.
package drift

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/preview"
)

// ErrDrift is the error of drift that exists. It is no failure, and has its own exit code.
var ErrDrift = errors.New("observed objects have drift")

type driftOptions struct {
	flags   *client.ConnectionFlags
	format  output.Format
	cluster string
	all     bool
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &driftOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "drift [KIND/NAME] [-n NAMESPACE | -A] [--cluster NAME]",
		Short: "List where observed objects differ from their templates",
		Long: `List where observed objects differ from their templates.

Clusters observe an object instead of writing it under drift: Report or drift: Approve, of a policy's
itemRules or of the annotation atoll.dev/drift. They report each field that an apply would change, with the value in
the cluster, the value that the cluster would get, the managers of the cluster's value, and since
when. An object that a cluster does not have is missing there. Values of Secrets are never reported.

Under drift: Approve each listed drift has an ID, and atoll drift correct lets a cluster correct it.

No cluster gets a request: the hub answers from the last reports. atoll diff compares an object now.

The exit code is 0 without drift and 2 with some. It is 1 for an error, and while a connected cluster
has not compared all objects with their latest content.`,
		Example: `  atoll drift -n shop
  atoll drift -A --cluster tokyo-1
  atoll drift deploy/web -n shop -o json
  atoll drift correct deploy/web -n shop --cluster tokyo-1`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	cmd.AddCommand(newCorrectCommand(flags))
	flags.AddNamespace(cmd.Flags())
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "all namespaces, and what is in none")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "only this cluster")
	o.format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

func (o *driftOptions) run(ctx context.Context, out io.Writer, args []string) error {
	if o.all && len(args) > 0 {
		return errors.New("KIND/NAME names one object, and --all-namespaces all: use one of them")
	}
	c, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	found, err := o.requestDrifts(ctx, c, args)
	if err != nil {
		return err
	}
	done, err := o.format.PrintStructured(out, found)
	if !done {
		_, err = io.WriteString(out, formatDrifts(found, time.Now()))
	}
	if err != nil {
		return err
	}
	return checkDrifts(found)
}

// checkDrifts returns the error that decides the exit code.
func checkDrifts(found *preview.Drifts) error {
	switch {
	case found.NotCompared == 1:
		return errors.New("1 row is not compared with its latest content yet: atoll get rows shows what it waits for")
	case found.NotCompared > 1:
		return fmt.Errorf("%d rows are not compared with their latest content yet: atoll get rows shows what they wait for", found.NotCompared)
	case len(found.Objects)+found.More > 0:
		return ErrDrift
	}
	return nil
}

func (o *driftOptions) requestDrifts(ctx context.Context, c *client.Connection, args []string) (*preview.Drifts, error) {
	request := c.REST.Get().AbsPath(atoll.DriftPath)
	switch {
	case len(args) > 0:
		object, err := c.ParseObject(ctx, args[0])
		if err != nil {
			return nil, err
		}
		request = c.RequestAbout(atoll.DriftPath, object)
	case !o.all:
		request.Param("namespace", c.Namespace)
	}
	if o.cluster != "" {
		request.Param("cluster", o.cluster)
	}
	return decodeDrifts(ctx, c, request)
}

// decodeDrifts sends a request for drift, and decodes its answer.
func decodeDrifts(ctx context.Context, c *client.Connection, request *rest.Request) (*preview.Drifts, error) {
	out := &preview.Drifts{}
	if err := c.DecodeAnswer(request.Do(ctx), "what is no JSON", out); err != nil {
		return nil, fmt.Errorf("list drift: %w", err)
	}
	return out, nil
}
