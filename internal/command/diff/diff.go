// Package diff is the command `atoll diff`: how an object in its clusters differs from what the hub
// sends to them.
//
// Contract: nothing is written. The hub renders the object with the functions that act, and each
// cluster's API computes the apply as a dry run, with the rights of the user there. Values of Secrets
// are never shown.
package diff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/preview"
)

const (
	// maxParallelMembers are compared at the same time.
	maxParallelMembers = 16
	// maxFieldsShown of a cluster are printed without --all.
	maxFieldsShown = 40
)

// ErrDifferences is the error of an object that differs somewhere. It is no failure, and has its own
// exit code.
var ErrDifferences = errors.New("the object differs in a cluster")

type diffOptions struct {
	flags   *client.ConnectionFlags
	format  output.Format
	cluster string
	all     bool
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &diffOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "diff KIND/NAME [-n NAMESPACE] [--cluster NAME]",
		Short: "Show how an object in its clusters differs from what they get",
		Long: `Show how an object in its clusters differs from what they get.

The hub renders the object for each cluster that has it, and each cluster's API computes what an
apply would change, as a dry run. Listed are the fields that Atoll would correct, with the value in
the cluster, the value that the cluster gets, and the managers of the cluster's value. Fields that
the template does not state, and fields that belong to the cluster, are no differences.

Nothing is written. You need the rights to get and patch the object in the clusters. Values of
Secrets are never shown.

The exit code is 0 if nothing differs, 2 if something does, and 1 if a cluster could not be
compared.`,
		Example: `  atoll diff deployment/web -n shop
  atoll diff cm/settings --cluster tokyo-1
  atoll diff deploy/web -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
	flags.AddNamespace(cmd.Flags())
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "only this cluster")
	cmd.Flags().BoolVar(&o.all, "all", false, "print all fields, and values as a whole")
	o.format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

func (o *diffOptions) run(ctx context.Context, out io.Writer, argument string) error {
	c, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	object, err := c.ParseObject(ctx, argument)
	if err != nil {
		return err
	}
	rendered, err := o.requestContents(ctx, c, object)
	if err != nil {
		return err
	}
	diffs, err := compareMembers(ctx, c, object, rendered)
	if err != nil {
		return err
	}
	done, err := o.format.PrintStructured(out, diffs)
	if !done {
		_, err = io.WriteString(out, formatDiffs(diffs, o.all))
	}
	if err != nil {
		return err
	}
	return summarizeDiffs(diffs, rendered.More)
}

// requestContents requests from the hub what the clusters get of the object.
func (o *diffOptions) requestContents(ctx context.Context, c *client.Connection, object client.Object) (*preview.Rendered, error) {
	request := c.RequestAbout(atoll.RenderPath, object)
	if o.cluster != "" {
		request.Param("cluster", o.cluster)
	}
	out := &preview.Rendered{}
	if err := c.DecodeAnswer(request.Do(ctx), "what is no JSON", out); err != nil {
		return nil, err
	}
	return out, nil
}

// compareMembers compares the object in each of its clusters, in the order of their names.
func compareMembers(ctx context.Context, c *client.Connection, object client.Object, rendered *preview.Rendered) ([]ClusterDiff, error) {
	key := atoll.ItemKey{Group: object.Kind.Group, Kind: object.Kind.Kind, Namespace: object.Namespace, Name: object.Name}
	type task struct {
		member  memberObject
		content *preview.RenderedContent
	}
	var tasks []task
	for i := range rendered.Contents {
		content := &rendered.Contents[i]
		resource := object.Resource
		resource.Version = schema.FromAPIVersionAndKind(content.APIVersion, object.Kind.Kind).Version
		for _, name := range content.Clusters {
			member, err := c.ConnectMember(name)
			if err != nil {
				return nil, err
			}
			m := memberObject{name: name, client: member.Dynamic.Resource(resource).Namespace(object.Namespace)}
			tasks = append(tasks, task{m, content})
		}
	}
	slices.SortFunc(tasks, func(a, b task) int { return strings.Compare(a.member.name, b.member.name) })
	out := make([]ClusterDiff, len(tasks))
	var group errgroup.Group
	group.SetLimit(maxParallelMembers)
	for i, t := range tasks {
		group.Go(func() error {
			out[i] = t.member.compareObject(ctx, key, t.content)
			return nil
		})
	}
	_ = group.Wait() // failures are in out
	return out, ctx.Err()
}

// summarizeDiffs returns the error that decides the exit code.
func summarizeDiffs(diffs []ClusterDiff, more int) error {
	failed, differ := 0, 0
	for _, d := range diffs {
		switch {
		case d.Error != "":
			failed++
		case d.Absent || len(d.Fields) > 0:
			differ++
		}
	}
	switch {
	case more > 0:
		return fmt.Errorf("%s more were not compared: name one by --cluster", phrase.CountNoun(more, "cluster"))
	case failed > 0:
		return fmt.Errorf("%s could not be compared", phrase.CountNoun(failed, "cluster"))
	case differ > 0:
		return ErrDifferences
	}
	return nil
}
