//! Links ISA-L, the rival of the parity kernels. Says what to install when it is missing.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if !std::path::Path::new("/usr/include/isa-l.h").exists() {
        println!(
            "cargo:warning=linking ISA-L for the comparison: /usr/include/isa-l.h is not there; \
             install it with `apt-get install libisal-dev`"
        );
    }
    println!("cargo:rustc-link-lib=isal");
}
