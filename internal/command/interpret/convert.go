package interpret

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/kinds/script"
)

type convertOptions struct {
	file, kind  string
	skipInvalid bool
}

// NewConvertCommand returns the command that converts interpreters of other systems.
func NewConvertCommand() *cobra.Command {
	o := &convertOptions{}
	cmd := &cobra.Command{
		Use:   "convert -f FILE|DIR|oci://REGISTRY/REPOSITORY:TAG",
		Short: "Convert interpreters of Karmada or Argo CD to ResourceInterpreters",
		Long: `Convert interpreters of Karmada or Argo CD to ResourceInterpreters.

The file holds Karmada's ResourceInterpreterCustomizations, a ConfigMap with Argo CD's health
scripts, or one health script, whose kind is --kind. The scripts are unchanged. A script that
does not compile is an error with line and column, and nothing is printed.

A directory holds such files, and so do all directories below it. Argo CD's layout gives the
kind of a health script: GROUP/KIND/health.lua, or KIND/health.lua for the core group, where
_ stands for any characters. Files without an interpreter are ignored, and so are hidden files,
testdata and actions. A directory can have 100,000 files. A file that can hold an interpreter
can have 4 MiB, and all of them 64 MiB. Links out of the directory are not followed.

An OCI artifact is read as the directory that flux or oras pushed, with the credentials of
docker login. It can have 32 MiB, and 128 MiB unpacked. Only localhost is read by plain HTTP.

The error lists all files that do not compile. With --skip-invalid they are listed as warnings,
and the others are converted.`,
		Example: `  atoll interpret convert -f customization.yaml | kubectl apply -f -
  atoll interpret convert -f health.lua --kind flink.apache.org/v1beta1/FlinkDeployment
  atoll interpret convert -f argo-cd/resource_customizations | kubectl apply -f -
  atoll interpret convert -f oci://registry.example/interpreters:v1 | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd)
		},
	}
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", "file, directory or OCI artifact to convert; - for standard input")
	cmd.Flags().StringVar(&o.kind, "kind", "", "APIVERSION/KIND of a health script")
	cmd.Flags().BoolVar(&o.skipInvalid, "skip-invalid", false, "convert the valid interpreters of a directory or an artifact, and list the others as warnings")
	if err := cmd.MarkFlagRequired("filename"); err != nil {
		panic(fmt.Sprintf("interpret: the flag is there: %v", err))
	}
	return cmd
}

func (o *convertOptions) run(cmd *cobra.Command) error {
	tree, err := convertTree(cmd.Context(), o.file)
	if err != nil {
		return err
	}
	var list []*v1alpha1.ResourceInterpreter
	if tree != nil {
		list, err = o.selectValid(tree, cmd.ErrOrStderr())
	} else {
		list, err = o.convertFile(cmd.InOrStdin())
	}
	if err != nil {
		return err
	}
	return printInterpreters(list, cmd.OutOrStdout())
}

// selectValid returns the interpreters of a tree, and prints warnings about what was left out.
func (o *convertOptions) selectValid(tree *script.ConvertedTree, warnings io.Writer) ([]*v1alpha1.ResourceInterpreter, error) {
	if o.kind != "" {
		return nil, fmt.Errorf("%s: the paths state the kinds, so --kind does not apply", o.file)
	}
	for _, sentence := range tree.Skipped {
		fmt.Fprintf(warnings, "warning: %s\n", sentence)
	}
	err := invalidError(tree)
	if err != nil && o.skipInvalid && len(tree.Interpreters) > 0 {
		for _, invalid := range tree.Invalid {
			for line := range strings.Lines(invalid.Error()) {
				fmt.Fprintf(warnings, "warning: skipped: %s\n", strings.TrimSuffix(line, "\n"))
			}
		}
		err = nil
	}
	return tree.Interpreters, err
}

func (o *convertOptions) convertFile(in io.Reader) ([]*v1alpha1.ResourceInterpreter, error) {
	if o.skipInvalid {
		return nil, fmt.Errorf("%s: --skip-invalid is for directories and artifacts", o.file)
	}
	text, err := readContent(o.file, in)
	if err != nil {
		return nil, err
	}
	kind, err := parseKind(o.kind)
	if err != nil {
		return nil, err
	}
	return script.ConvertFile(o.file, text, kind)
}

// printInterpreters prints all interpreters as YAML documents, or none.
func printInterpreters(list []*v1alpha1.ResourceInterpreter, out io.Writer) error {
	var all bytes.Buffer
	for i, r := range list {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
		doc, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		if i > 0 {
			all.WriteString("---\n")
		}
		all.Write(doc)
	}
	_, err := out.Write(all.Bytes())
	return err
}

// parseKind returns nil where there is no text.
func parseKind(text string) (*schema.GroupVersionKind, error) {
	if text == "" {
		return nil, nil
	}
	i := strings.LastIndex(text, "/")
	gv, err := schema.ParseGroupVersion(text[:max(i, 0)])
	if i < 0 || err != nil || gv.Version == "" || text[i+1:] == "" {
		return nil, fmt.Errorf("--kind %s: give APIVERSION/KIND, such as apps/v1/Deployment or v1/Pod", text)
	}
	gvk := gv.WithKind(text[i+1:])
	return &gvk, nil
}
