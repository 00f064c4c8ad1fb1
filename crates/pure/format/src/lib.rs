//! Bytes on disk: the md superblock and foreign signatures
