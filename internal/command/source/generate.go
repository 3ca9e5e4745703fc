package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/sources/generate"
	"atoll.dev/atoll/internal/sources/render"
	"atoll.dev/atoll/internal/sources/render/filetree"
)

// generateOptions of one preview of a SourceSet.
type generateOptions struct {
	file, namespace string
	local, clusters []string
	showNames       bool
}

func newGenerateCommand() *cobra.Command {
	o := &generateOptions{}
	cmd := &cobra.Command{
		Use:   "generate -f SOURCESET.yaml [--local [REPOSITORY=]DIR...] [--cluster NAME[:KEY=VALUE,...]...]",
		Short: "Print the Sources that a SourceSet makes, without a hub",
		Long: `Print the Sources that a SourceSet makes, without a hub.

The functions are those of the hub. --local names the directory with the files of a Repository, as a commit of them
would be; without a name it stands for all Repositories. --cluster names a Cluster that the namespace may place on,
with its labels. What the hub would refuse as a whole is an error with its place, and nothing is printed. Rights of the
ServiceAccount, and names that other Sources have, are checked by the hub alone.`,
		Example: `  atoll source generate -f apps.yaml --local .
  atoll source generate -f apps.yaml --local apps=../apps --cluster oslo:env=prod --cluster bergen:env=test --names`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout()) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "filename", "f", "", "file with the SourceSet")
	f.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of a SourceSet that states none")
	f.StringArrayVar(&o.local, "local", nil, "directory with the files of a Repository, as [REPOSITORY=]DIR; may be given more than once")
	f.StringArrayVar(&o.clusters, "cluster", nil, "Cluster of the namespace, as NAME[:KEY=VALUE,...]; may be given more than once")
	f.BoolVar(&o.showNames, "names", false, "print the names alone, each with its entry")
	if err := cmd.MarkFlagRequired("filename"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func (o *generateOptions) run(out io.Writer) error {
	set, err := o.readSet()
	if err != nil {
		return err
	}
	facts, err := o.gatherFacts(set)
	if err != nil {
		return err
	}
	result, problems := generate.Generate(set, facts)
	if len(problems) > 0 {
		return joinGenerateProblems(problems)
	}
	return o.printMade(out, result)
}

// readSet returns the SourceSet of the file. Fields that the hub would refuse are errors.
func (o *generateOptions) readSet() (*v1alpha1.SourceSet, error) {
	text, err := os.ReadFile(o.file)
	if err != nil {
		return nil, fmt.Errorf("--filename: %w", err)
	}
	set := &v1alpha1.SourceSet{}
	if err := yaml.UnmarshalStrict(text, set); err != nil {
		return nil, fmt.Errorf("--filename: %s: %w", o.file, err)
	}
	if set.Kind != "SourceSet" || set.APIVersion != v1alpha1.GroupVersion.String() || set.Name == "" {
		return nil, fmt.Errorf("--filename: %s has no SourceSet of %s with a name", o.file, v1alpha1.GroupVersion)
	}
	if set.Namespace == "" {
		set.Namespace = o.namespace
	}
	if errs := generate.Check(set); len(errs) > 0 {
		return nil, fmt.Errorf("--filename: %s: %w", o.file, field.ErrorList(errs).ToAggregate())
	}
	return set, nil
}

// gatherFacts returns what the generators find: in the directories and the Clusters of the flags.
func (o *generateOptions) gatherFacts(set *v1alpha1.SourceSet) (generate.Facts, error) {
	facts := generate.Facts{Listings: map[string]*render.Listing{}}
	dirs, err := o.readDirectories()
	if err != nil {
		return facts, err
	}
	for _, text := range o.clusters {
		c, err := parseCluster(text)
		if err != nil {
			return facts, err
		}
		facts.Clusters = append(facts.Clusters, c)
	}
	leaves := generate.ListLeaves(&set.Spec)
	for i := range leaves {
		reading := leaves[i].Reading()
		if reading == nil {
			continue
		}
		dir, given := dirs[reading.Repository]
		if !given {
			dir, given = dirs[""]
		}
		if !given {
			return facts, fmt.Errorf("spec.%s reads the Repository %s: give its files by --local %s=DIR", leaves[i].Path, reading.Repository, reading.Repository)
		}
		if facts.Listings[leaves[i].Path], err = listDirectory(dir, leaves[i].Path, reading.Want); err != nil {
			return facts, err
		}
	}
	return facts, nil
}

// readDirectories returns the directories of the flags by Repository; the one for all has an empty name.
func (o *generateOptions) readDirectories() (map[string]string, error) {
	out := map[string]string{}
	for _, text := range o.local {
		name, dir, named := strings.Cut(text, "=")
		if !named {
			name, dir = "", text
		}
		if _, taken := out[name]; taken || dir == "" {
			return nil, fmt.Errorf("--local: %q names no directory, or a second one for the same Repository", text)
		}
		out[name] = dir
	}
	return out, nil
}

// parseCluster returns a Cluster of NAME[:KEY=VALUE,...].
func parseCluster(text string) (generate.Cluster, error) {
	name, list, _ := strings.Cut(text, ":")
	set, err := labels.ConvertSelectorToLabelsMap(list)
	if err != nil || name == "" {
		return generate.Cluster{}, fmt.Errorf("--cluster: %q is not NAME[:KEY=VALUE,...]", text)
	}
	return generate.Cluster{Name: name, Labels: set}, nil
}

// listDirectory lists what a generator lists of a directory.
func listDirectory(dir, path string, want render.ListingWant) (*render.Listing, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("--local: %w", err)
	}
	defer root.Close()
	listing, problems, err := render.List(filetree.Tree{FS: root.FS()}, want)
	if err != nil {
		return nil, fmt.Errorf("spec.%s: %w", path, err)
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("spec.%s: %w", path, joinProblems(problems))
	}
	return listing, nil
}

// joinGenerateProblems returns problems as one error.
func joinGenerateProblems(problems []generate.Problem) error {
	errs := make([]error, 0, len(problems))
	for _, p := range problems {
		errs = append(errs, errors.New(phrase.EscapeLine(p.Format())))
	}
	return errors.Join(errs...)
}

// printMade prints the Sources, each with its generator and its entry.
func (o *generateOptions) printMade(out io.Writer, result generate.Result) error {
	var text bytes.Buffer
	for _, m := range result.Made {
		entry := strings.Join(slices.DeleteFunc([]string{"spec." + m.Path, m.File, m.Cluster}, func(s string) bool { return s == "" }), " ")
		if o.showNames {
			fmt.Fprintf(&text, "%s\t%s\n", m.Name, phrase.EscapeLine(entry))
			continue
		}
		raw, err := yaml.Marshal(m.Object)
		if err != nil {
			return fmt.Errorf("print a Source: %w", err)
		}
		fmt.Fprintf(&text, "---\n# %s\n%s", phrase.EscapeLine(entry), raw)
	}
	for _, i := range result.Empty {
		fmt.Fprintf(&text, "# spec.generators[%d] finds no entry, or a part of it does: the hub keeps the Sources that it made\n", i)
	}
	_, err := out.Write(text.Bytes())
	return err
}
