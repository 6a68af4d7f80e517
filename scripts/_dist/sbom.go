package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbom writes what the commands say that they were built from, in CycloneDX's JSON: each
// command with the hash of its file, the modules in it and Go's standard library.
// The libraries that are found at run time, libc, libpmix and libibverbs, are not in it.
func (r *release) sbom() error {
	root := component(cdx.ComponentTypeApplication, project, r.version)
	root.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &root}
	var components []cdx.Component
	var edges []cdx.Dependency
	parts, std := []string{}, ""
	for _, name := range slices.Sorted(maps.Keys(r.commands)) {
		build := r.commands[name]
		command := component(cdx.ComponentTypeFile, project+"#cmd/"+name, r.version)
		data, err := os.ReadFile(filepath.Join(r.stage, "bin", name))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		command.Name, command.Hashes = "bin/"+name, hash(sum[:])
		std = strings.TrimPrefix(build.GoVersion, "go")
		on := []string{component(cdx.ComponentTypeLibrary, "std", std).BOMRef}
		for _, m := range build.Deps {
			on = append(on, moduleOf(m).BOMRef)
		}
		components = append(components, command)
		parts = append(parts, command.BOMRef)
		edges = append(edges, cdx.Dependency{Ref: command.BOMRef, Dependencies: &on})
	}
	for _, path := range slices.Sorted(maps.Keys(r.modules)) {
		c := moduleOf(r.modules[path])
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.modules[path].Sum, "h1:"))
		if err != nil || len(sum) != sha256.Size {
			return fmt.Errorf("module %s: found the sum %q, want h1: and 32 bytes", path, r.modules[path].Sum)
		}
		c.Hashes = hash(sum)
		components = append(components, c)
	}
	components = append(components, component(cdx.ComponentTypeLibrary, "std", std))
	edges = append(edges, cdx.Dependency{Ref: root.BOMRef, Dependencies: &parts})
	bom.Components, bom.Dependencies = &components, &edges
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return r.write(fmt.Sprintf("gorun-%s-linux-%s.cdx.json", r.version, r.arch), out.Bytes())
}

func moduleOf(m *debug.Module) cdx.Component {
	return component(cdx.ComponentTypeLibrary, m.Path, m.Version)
}

func component(kind cdx.ComponentType, path, version string) cdx.Component {
	name, sub, _ := strings.Cut(path, "#")
	purl := "pkg:golang/" + name + "@" + version
	if sub != "" {
		purl += "#" + sub
	}
	return cdx.Component{Type: kind, BOMRef: purl, Name: name, Version: version, PackageURL: purl}
}

func hash(sum []byte) *[]cdx.Hash {
	return &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
}
