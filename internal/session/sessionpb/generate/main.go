// Command generate writes the Go code of the .proto file that is its argument, next
// to it. It needs no protoc: the file is compiled in process and handed to the two
// plugins, which are pinned as tools of this module.
//
// Run it by `go generate ./internal/...`.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate FILE.proto")
		os.Exit(1)
	}
	if err := generateProtobufCode(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "generate "+os.Args[1]+":", err)
		os.Exit(1)
	}
}

func generateProtobufCode(ctx context.Context, file string) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(ctx, file)
	if err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	var files []*descriptorpb.FileDescriptorProto
	for i := range compiled[0].Imports().Len() { // those of protobuf itself, which import nothing
		files = append(files, protodesc.ToFileDescriptorProto(compiled[0].Imports().Get(i)))
	}
	files = append(files, protodesc.ToFileDescriptorProto(compiled[0]))
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := runPlugin(ctx, plugin, file, files); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return nil
}

// runPlugin hands the file to a plugin as protoc would and writes what it answers.
func runPlugin(ctx context.Context, plugin, file string, files []*descriptorpb.FileDescriptorProto) error {
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      files,
	})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(answer, &response); err != nil {
		return fmt.Errorf("read its answer: %w", err)
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, f := range response.File {
		if strings.Contains(f.GetName(), "/") {
			return fmt.Errorf("it would write %s, outside of the directory", f.GetName())
		}
		if err := os.WriteFile(f.GetName(), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
