package source

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/render"
	"atoll.dev/atoll/internal/sources/render/filetree"
	"atoll.dev/atoll/internal/sources/renderchild"
)

// hubProgram renders charts and kustomizations, whose libraries the agent does without.
const hubProgram = "atoll-hub"

// renderOptions of one rendering.
type renderOptions struct {
	build                          buildFlags
	file, name, namespace, program string
	variant                        string
	paths, exclude, inputs         []string
}

func newRenderCommand() *cobra.Command {
	o := &renderOptions{}
	cmd := &cobra.Command{
		Use:   "render DIR [-f SOURCE.yaml | --name NAME [--path PATH...]]",
		Short: "Print the objects that a Source makes of a directory, without a hub",
		Long: `Print the objects that a Source makes of a directory, without a hub.

DIR is the root of a repository, as a commit of its files would be. -f takes the paths and the build from a
manifest of a Source. The functions are those of the hub. Charts and kustomizations are rendered by ` + hubProgram + `,
which must be beside atoll or in the PATH, and of the version of your hub. The hub adds the label of the Source, and
the namespace where an object states none. All variants of the Source are rendered, and --variant prints one. Content that the hub would refuse is an error, and nothing is printed.

--input gives the text of a key that valuesFrom names. Values of a Secret are replaced by "` + render.MaskedText + `" before anything is rendered,
so a file with the same fields will do.`,
		Example: `  atoll source render . -f source.yaml
  atoll source render . --name shop -n shop --path charts/shop --values prod.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "filename", "f", "", "file with the Source")
	f.StringVar(&o.name, "name", "source", "name of the Source")
	f.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of the Source")
	f.StringSliceVar(&o.paths, "path", nil, "directory or file below DIR; may be given more than once (default: all)")
	f.StringSliceVar(&o.exclude, "exclude", nil, "pattern of files that are not read; may be given more than once")
	f.StringVar(&o.variant, "variant", "", "variant of the Source of -f to print (default: what clusters without a variant get)")
	f.StringVar(&o.program, "hub-program", "", "path of "+hubProgram+" (default: beside atoll, or in the PATH)")
	f.StringArrayVar(&o.inputs, "input", nil, "text of a key of valuesFrom, as KIND/NAME/KEY=FILE; may be given more than once")
	o.build.addType(f)
	o.build.addTo(f)
	for _, flag := range []string{"name", "path", "exclude", "build", "values", "values-path", "release-name", "kube-version", "api-versions", "omit-hooks"} {
		cmd.MarkFlagsMutuallyExclusive("filename", flag)
	}
	return cmd
}

func (o *renderOptions) run(ctx context.Context, out io.Writer, dir string) error {
	s, err := o.newSource()
	if err != nil {
		return err
	}
	inputs, err := o.readInputs(s)
	if err != nil {
		return err
	}
	result, err := renderDirectory(ctx, dir, s, inputs, o.program)
	if err != nil {
		return err
	}
	if err := checkComplete(result); err != nil {
		return err
	}
	if o.variant != "" {
		if result.Objects, err = selectVariant(s, &result, o.variant); err != nil {
			return err
		}
	}
	return printResult(out, result, o.variant == "")
}

// selectVariant returns the objects of a variant.
func selectVariant(s *v1alpha1.Source, result *render.Result, name string) ([]render.Object, error) {
	if objects, ok := result.ObjectsOf(name); ok {
		return objects, nil
	}
	names := make([]string, 0, len(s.Spec.Variants))
	for _, v := range s.Spec.Variants {
		if v.Name == name {
			return nil, nil // excluded
		}
		names = append(names, v.Name)
	}
	return nil, fmt.Errorf("--variant: the Source has no variant %q; it has %s", name, cmp.Or(strings.Join(names, ", "), "none"))
}

// readInputs returns the values that the Source names, of the files of the flags. Those of Secrets are masked.
func (o *renderOptions) readInputs(s *v1alpha1.Source) (render.Inputs, error) {
	files := map[string]map[string]any{} // objects with their data, by KIND/NAME
	for _, one := range o.inputs {
		id, file, _ := strings.Cut(one, "=")
		parts := strings.Split(id, "/")
		if len(parts) != 3 || file == "" {
			return nil, fmt.Errorf("--input: %q is not KIND/NAME/KEY=FILE", one)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--input: %w", err)
		}
		value := string(text)
		if parts[0] == string(v1alpha1.ValuesOfSecret) {
			value = base64.StdEncoding.EncodeToString(text)
		}
		object := parts[0] + "/" + parts[1]
		if files[object] == nil {
			files[object] = map[string]any{}
		}
		files[object][parts[2]] = value
	}
	inputs, err := changes.CollectInputs(s, func(ref v1alpha1.ValuesReference) (*unstructured.Unstructured, error) {
		data, given := files[string(ref.Kind)+"/"+ref.Name]
		if !given {
			return nil, nil
		}
		return &unstructured.Unstructured{Object: map[string]any{"data": data}}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w; give its text by --input", err)
	}
	masked, problem := inputs.MaskSecrets()
	if problem != nil {
		return nil, fmt.Errorf("--input: %s", problem.Format())
	}
	return masked, nil
}

// renderDirectory renders the files of a directory, with inputs, as the Source would. program is the path of the one that renders charts
// and kustomizations; empty to find it.
func renderDirectory(ctx context.Context, dir string, s *v1alpha1.Source, inputs render.Inputs, program string) (render.Result, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return render.Result{}, fmt.Errorf("open the directory: %w", err)
	}
	defer root.Close()
	tree := filetree.Tree{FS: root.FS()}
	want := changes.NewWant(s)
	want.Inputs = inputs
	selected, err := render.Select(tree, want)
	if err != nil {
		return render.Result{}, err
	}
	return selected.Render(tree, func(j render.Job) (render.Result, error) {
		executable, err := findProgram(program)
		if err != nil {
			return render.Result{}, err
		}
		return renderchild.Runner{Executable: []string{executable, renderchild.ChildCommand}}.Run(ctx, j)
	})
}

// newSource returns the Source of the file or of the flags.
func (o *renderOptions) newSource() (*v1alpha1.Source, error) {
	s := &v1alpha1.Source{}
	if o.file == "" {
		build, err := o.build.newBuild()
		if err != nil {
			return nil, err
		}
		s.Name, s.Namespace = o.name, o.namespace
		s.Spec.Paths, s.Spec.Exclude, s.Spec.Build = o.paths, o.exclude, build
		return s, nil
	}
	text, err := os.ReadFile(o.file)
	if err != nil {
		return nil, fmt.Errorf("--filename: %w", err)
	}
	if err := yaml.UnmarshalStrict(text, s); err != nil {
		return nil, fmt.Errorf("--filename: %s: %w", o.file, err)
	}
	if s.Kind != "Source" || s.APIVersion != v1alpha1.GroupVersion.String() || s.Name == "" {
		return nil, fmt.Errorf("--filename: %s has no Source of %s with a name", o.file, v1alpha1.GroupVersion)
	}
	if s.Namespace == "" {
		s.Namespace = o.namespace
	}
	return s, nil
}

// findProgram returns the path of the program that renders: the stated one, or the hub's beside this one or in the PATH.
func findProgram(stated string) (string, error) {
	if stated != "" {
		return stated, nil
	}
	if own, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(own), hubProgram)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	found, err := exec.LookPath(hubProgram)
	if err != nil {
		return "", fmt.Errorf("%s, which renders charts and kustomizations, is neither beside atoll nor in the PATH: take the one of your hub's version, or name it with --hub-program", hubProgram)
	}
	return found, nil
}

// checkComplete returns why the hub would refuse the content as a whole.
func checkComplete(result render.Result) error {
	if result.Failure != nil {
		return result.Failure
	}
	return joinProblems(result.Problems)
}

// printResult prints the objects as YAML, each with its file and line, and counts what variants have of their own.
func printResult(out io.Writer, result render.Result, withVariants bool) error {
	var text bytes.Buffer
	for _, o := range result.Objects {
		raw, err := yaml.Marshal(o.Fields)
		if err != nil {
			return fmt.Errorf("print an object: %w", err)
		}
		fmt.Fprintf(&text, "---\n# %s:%d\n", phrase.EscapeLine(o.File), o.Line)
		for _, path := range o.Generated {
			fmt.Fprintf(&text, "# %s: each rendering makes another value, and the hub keeps the first one\n", phrase.EscapeLine(path))
		}
		text.Write(raw)
	}
	if result.Omitted > 0 {
		fmt.Fprintf(&text, "# %s of Helm left out\n", phrase.CountNoun(result.Omitted, "hook"))
	}
	for _, v := range result.Variants {
		if withVariants {
			fmt.Fprintf(&text, "# variant %s: %s of its own, %d left out or other ones; --variant %s prints it\n", v.Name, phrase.CountNoun(len(v.Objects), "object"), len(v.Absent), v.Name)
		}
	}
	_, err := out.Write(text.Bytes())
	return err
}
