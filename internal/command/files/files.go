// Package files reads the objects that -f names, as kubectl does: YAML and JSON, from
// files, directories and the standard input.
//
// Contract: objects come in the order in which they stand, Lists taken apart. Errors name
// the file and the place in it. Nothing is sent anywhere.
package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Names are the values of -f.
type Names struct {
	paths     []string
	recursive bool
}

// AddTo adds -f and -R.
func (n *Names) AddTo(flags *pflag.FlagSet) {
	flags.StringSliceVarP(&n.paths, "filename", "f", nil, "files or directories of objects, - for the standard input; may be given more than once")
	flags.BoolVarP(&n.recursive, "recursive", "R", false, "go into directories below")
}

// AddAs adds a flag of another name, for other files, without -R.
func (n *Names) AddAs(flags *pflag.FlagSet, name, usage string) {
	flags.StringSliceVar(&n.paths, name, nil, usage)
}

// Given tells whether any file is named.
func (n *Names) Given() bool { return len(n.paths) > 0 }

// Read all objects. There must be at least one file.
func (n *Names) Read(stdin io.Reader) ([]*unstructured.Unstructured, error) {
	if len(n.paths) == 0 {
		return nil, errors.New("name the files with -f; - is the standard input")
	}
	var out []*unstructured.Unstructured
	for _, path := range n.paths {
		if path == "-" {
			objects, err := decode("standard input", stdin)
			if err != nil {
				return nil, err
			}
			out = append(out, objects...)
			continue
		}
		names, err := n.expand(path)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			objects, err := readFile(name)
			if err != nil {
				return nil, err
			}
			out = append(out, objects...)
		}
	}
	return out, nil
}

// expand a directory into the files in it that hold objects, by name.
func (n *Names) expand(path string) (names []string, err error) {
	err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != path && !n.recursive:
			return fs.SkipDir
		case d.IsDir():
		case name == path || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
			names = append(names, name)
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s: no file ends in .yaml, .yml or .json", path)
	}
	return names, err
}

func readFile(name string) ([]*unstructured.Unstructured, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return decode(name, f)
}

func decode(name string, r io.Reader) (out []*unstructured.Unstructured, err error) {
	d := yaml.NewYAMLOrJSONDecoder(r, 4096)
	for i := 1; ; i++ {
		var raw json.RawMessage
		if err := d.Decode(&raw); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", name, i, err)
		}
		if raw = bytes.TrimSpace(raw); len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
			continue
		}
		obj, _, err := unstructured.UnstructuredJSONScheme.Decode(raw, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", name, i, err)
		}
		switch o := obj.(type) {
		case *unstructured.Unstructured:
			out = append(out, o)
		case *unstructured.UnstructuredList:
			for j := range o.Items {
				out = append(out, &o.Items[j])
			}
		}
	}
}
