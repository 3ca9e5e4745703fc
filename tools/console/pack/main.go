// Command pack compresses the built files of the console for the hub: pack FROM TO.
//
// Contract: TO holds exactly the files of FROM afterwards, each as NAME.gz. The same content gives the same
// bytes: the compressed file has no time and no name.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: pack FROM TO")
		os.Exit(2)
	}
	if err := packDirectory(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// packDirectory replaces the compressed files in the directory to.
func packDirectory(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	former, err := filepath.Glob(filepath.Join(to, "*.gz"))
	if err != nil {
		return err
	}
	for _, f := range former {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		compressed, err := compressContent(content)
		if err != nil {
			return fmt.Errorf("compress %s: %w", e.Name(), err)
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()+".gz"), compressed, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func compressContent(content []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(content); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
