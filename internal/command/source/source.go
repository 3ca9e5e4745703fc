// Package source is the command `atoll source`: Sources are made, rendered, compared, listed, synchronised and suspended, and those
// of a SourceSet are previewed.
//
// Contract: the command writes Repositories, Sources, and the ServiceAccount that Sources write by, and nothing
// else. Without --yes or the answer of a person nothing is made. The hub does the rest. Rendering reads a directory
// and no hub.
package source

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/render"
)

var (
	repositories = v1alpha1.GroupVersion.WithResource("repositories")
	sources      = v1alpha1.GroupVersion.WithResource("sources")
)

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "source",
		Short: "Apply the objects of a git, Helm or OCI repository, and follow it",
		Long: `Apply the objects of a git, Helm or OCI repository, and follow it.

A Source applies the objects of a directory of a Repository as templates on the hub: those of YAML and JSON files,
of a kustomization, or of a Helm chart. A chart may also come from a Helm repository or a registry, and
files from an OCI artifact. A commit
that changes the directory changes the templates, and so does a later version of a chart. What a commit or a later version
drops is removed; nothing else removes anything: what runs stays while the repository cannot be read, and when the
Source is deleted. A SourceSet makes many Sources of one template.`,
	}
	create := &cobra.Command{Use: "create", Short: "Make a Source"}
	create.AddCommand(newCreateGitCommand(flags), newCreateHelmCommand(flags), newCreateOCICommand(flags))
	cmd.AddCommand(create, newRenderCommand(), newGenerateCommand(), newDiffCommand(flags), newListCommand(flags), newGetCommand(flags),
		newPatchCommand(flags, patchCommand{"sync NAME", "Check the Repository now, and apply every object again",
			func(read readSource) (map[string]any, error) {
				s, err := read()
				if err != nil {
					return nil, err
				}
				before, _, _ := unstructured.NestedString(s.Object, "spec", "syncRequest")
				return map[string]any{"syncRequest": nextSyncRequest(time.Now(), before)}, nil
			}, "the hub checks the Repository of source/%s now; follow it with: atoll source get %s -n %s\n"}),
		newPatchCommand(flags, patchCommand{"suspend NAME", "Stop a Source; what runs stays",
			func(readSource) (map[string]any, error) { return map[string]any{"suspend": true}, nil }, "source/%s is suspended; what runs stays; undo it with: atoll source resume %s -n %s\n"}),
		newPatchCommand(flags, patchCommand{"resume NAME", "Let a suspended Source go on",
			func(readSource) (map[string]any, error) { return map[string]any{"suspend": nil}, nil }, "source/%s goes on; follow it with: atoll source get %s -n %s\n"}))
	return cmd
}

// readSource reads the Source that a command is about.
type readSource func() (*unstructured.Unstructured, error)

// nextSyncRequest returns the time of a request to synchronise, which has whole seconds and is later than the one
// before, so that two requests of one second are two.
func nextSyncRequest(now time.Time, before string) string {
	now = now.UTC().Truncate(time.Second)
	if last, err := time.Parse(time.RFC3339, before); err == nil && !now.After(last) {
		now = last.UTC().Truncate(time.Second).Add(time.Second)
	}
	return now.Format(time.RFC3339)
}

// patchCommand is a command that sets a field of a Source.
type patchCommand struct {
	use, short string
	fields     func(read readSource) (map[string]any, error)
	done       string
}

func newPatchCommand(flags *client.ConnectionFlags, is patchCommand) *cobra.Command {
	cmd := &cobra.Command{
		Use: is.use, Short: is.short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			objects := c.Dynamic.Resource(sources).Namespace(c.Namespace)
			fields, err := is.fields(func() (*unstructured.Unstructured, error) {
				return objects.Get(cmd.Context(), args[0], metav1.GetOptions{})
			})
			if err != nil {
				return c.ExplainError(err)
			}
			patch, err := json.Marshal(map[string]any{"spec": fields})
			if err != nil {
				return err
			}
			_, err = objects.Patch(cmd.Context(), args[0], types.MergePatchType, patch, metav1.PatchOptions{FieldManager: atoll.CLIFieldManager})
			if err != nil {
				return c.ExplainError(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), is.done, args[0], args[0], c.Namespace)
			return err
		},
	}
	flags.AddNamespace(cmd.Flags())
	return cmd
}

func newListCommand(flags *client.ConnectionFlags) *cobra.Command {
	var format output.Format
	var all bool
	cmd := &cobra.Command{
		Use: "list [-n NAMESPACE | -A]", Short: "List Sources with their commits and clusters", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			namespace := c.Namespace
			if all {
				namespace = metav1.NamespaceAll
			}
			found, err := client.List[v1alpha1.Source](cmd.Context(), c, sources, namespace, metav1.ListOptions{})
			if err != nil {
				return err
			}
			if done, err := format.PrintStructured(cmd.OutOrStdout(), found); done || err != nil {
				return err
			}
			return printSources(cmd.OutOrStdout(), found)
		},
	}
	flags.AddNamespace(cmd.Flags())
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "all namespaces")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

func printSources(out io.Writer, found []v1alpha1.Source) error {
	if len(found) == 0 {
		_, err := fmt.Fprintln(out, "no Sources; `atoll source create git URL` or `atoll source create helm URL` makes one")
		return err
	}
	table := output.NewTable(out, "NAMESPACE", "NAME", "REPOSITORY", "REVISION", "MESSAGE", "CLUSTERS", "WAITS FOR")
	for i := range found {
		s := &found[i]
		table.AddRow(s.Namespace, s.Name, s.Spec.Repository, s.Status.ShortCommit, phrase.TruncateText(s.Status.Message, 50), s.Status.Clusters.Summary, phrase.TruncateText(s.Status.WaitsFor, 80))
	}
	return table.Flush()
}

func newGetCommand(flags *client.ConnectionFlags) *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use: "get NAME [-n NAMESPACE]", Short: "Show a Source: its commit, objects, conditions and errors", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			s, err := client.Get[v1alpha1.Source](cmd.Context(), c, sources, c.Namespace, args[0])
			if err != nil {
				return err
			}
			if done, err := format.PrintStructured(cmd.OutOrStdout(), s); done || err != nil {
				return err
			}
			return printSource(cmd.Context(), cmd.OutOrStdout(), c, s)
		},
	}
	flags.AddNamespace(cmd.Flags())
	format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

// printSource prints a Source, with its Repository where the user may read it.
func printSource(ctx context.Context, out io.Writer, c *client.Connection, s *v1alpha1.Source) error {
	st := &s.Status
	lines := []string{
		fmt.Sprintf("source/%s in namespace %s", s.Name, s.Namespace),
		strings.TrimRight(fmt.Sprintf("  %-9s %s %s", changes.RevisionNoun(st.Commit), st.Commit, st.Message), " "),
		fmt.Sprintf("  objects   %d in the content, %d applied, %d kept", st.Objects.Total, st.Objects.Applied, st.Objects.Kept),
		"  clusters  " + st.Clusters.Summary,
	}
	if st.Author != "" {
		lines = slices.Insert(lines, 2, "  author    "+st.Author)
	}
	if v := st.Verified; v != nil {
		lines = append(lines, fmt.Sprintf("  signed by %s (%s)", v.Signer, changes.DescribeRevision(v.Commit)))
	}
	if set := s.Labels[v1alpha1.LabelSourceSet]; set != "" {
		lines = append(lines, "  made by   sourceset/"+set)
	}
	if c := st.CommitStatus; c != nil {
		lines = append(lines, "  reported  "+formatReported(c))
	}
	for _, b := range st.Builds {
		lines = append(lines, fmt.Sprintf("  build     %s of %s %s", b.Type, b.Path, b.Chart))
	}
	if st.WaitsFor != "" {
		lines = append(lines, "  waits for "+st.WaitsFor)
	}
	if repo, err := client.Get[v1alpha1.Repository](ctx, c, repositories, s.Namespace, s.Spec.Repository); err == nil {
		lines = append(lines, describeRepository(repo)...)
	}
	for _, cond := range st.Conditions {
		lines = append(lines, formatCondition(cond, cond.Type))
	}
	for _, line := range append(lines, describeProblems(st)...) {
		if _, err := fmt.Fprintln(out, phrase.EscapeLine(line)); err != nil {
			return err
		}
	}
	return nil
}

// describeProblems returns the errors of the content, and the objects that are not as in the content.
func describeProblems(st *v1alpha1.SourceStatus) (lines []string) {
	for _, e := range st.Errors {
		lines = append(lines, "  error     "+formatError(e))
	}
	for _, o := range st.Drift {
		lines = append(lines, "  changed   "+formatChanged(o))
	}
	for _, o := range st.Inventory {
		if o.Kept != "" {
			lines = append(lines, fmt.Sprintf("  kept      %s %s %s: %s", o.Kind, o.Namespace, o.Name, o.Kept))
		}
	}
	return lines
}

// describeRepository returns what the hub reports of a Repository.
func describeRepository(repo *v1alpha1.Repository) (lines []string) {
	if c := meta.FindStatusCondition(repo.Status.Conditions, v1alpha1.RepositoryReachable); c != nil {
		lines = append(lines, formatCondition(*c, "repository "+changes.PlaceOf(&repo.Spec).URL))
	}
	if c := meta.FindStatusCondition(repo.Status.Conditions, v1alpha1.RepositoryWebhookReady); c != nil {
		lines = append(lines, formatCondition(*c, "webhook /webhooks/"+repo.Namespace+"/"+repo.Name))
	}
	if at := repo.Status.WebhookTime; at != nil {
		lines = append(lines, "  webhook   the last request came "+phrase.FormatTime(at.Time))
	}
	return lines
}

// formatReported returns what was reported to the git server.
func formatReported(c *v1alpha1.SourceCommitStatus) string {
	text := "nothing yet"
	if c.Time != nil {
		text = fmt.Sprintf("%s for %s at %s", c.State, changes.DescribeRevision(c.Commit), phrase.FormatTime(c.Time.Time))
	}
	if c.Problem != "" && c.ProblemSince != nil {
		text += fmt.Sprintf("; since %s: %s", phrase.FormatTime(c.ProblemSince.Time), c.Problem)
	}
	return text
}

// formatChanged returns an object that others changed on the hub.
func formatChanged(o v1alpha1.ChangedObject) string {
	what := "deleted"
	if !o.Deleted {
		what = strings.Join(o.Fields, ", ")
	}
	if len(o.Managers) > 0 {
		what += " by " + strings.Join(o.Managers, ", ")
	}
	if o.Message != "" {
		what += ": " + o.Message
	}
	return fmt.Sprintf("%s %s %s since %s: %s", o.Kind, o.Namespace, o.Name, phrase.FormatTime(o.Since.Time), what)
}

// formatError returns an error of the content with its file and line, where it has them.
func formatError(e v1alpha1.SourceError) string {
	if e.File == "" {
		return e.Message
	}
	return render.Problem{File: e.File, Line: int(e.Line), Message: e.Message}.Format()
}

func formatCondition(c metav1.Condition, name string) string {
	return fmt.Sprintf("  %s: %s, %s since %s: %s", name, c.Status, c.Reason, phrase.FormatTime(c.LastTransitionTime.Time), c.Message)
}
